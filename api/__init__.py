"""The functions of `davylamp`, used by scripts and by every command of the command line.

`verbs` attacks one model and `measuring` measures one; `training` trains models, detectors and attacks; `evaluation`
fills a results folder and `estimating` says at what cost; `folders` reads one, `gating` decides requirements on one,
`rankings` ranks one, `baseline_placement` places new models, `placing` places results among published ones.
"""
