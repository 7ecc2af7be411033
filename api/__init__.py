"""The verbs of `davylamp`: what a script calls, and what every command of the command line calls, too.

`verbs` attacks one model and `measuring` measures one; `training` trains models, detectors and attacks; `evaluation`
fills a results folder, `folders` reads one, `rankings` ranks one, `placing` places new models.
"""
