"""The public functions of `davylamp`. Scripts call these functions directly, and each command line command calls one.

`verbs` runs attacks on one model, and `measuring` measures the robustness of one model. `training` trains models,
detectors and attacks. `evaluation` runs attacks on models into a results folder, and `estimating` estimates its cost.
`folders`, `gating` and `rankings` read a results folder: tables and exports, requirements, rankings.
`baseline_placement` ranks new models among evaluated ones, and `placing` ranks results among published ones.
"""
