"""The verbs of `davylamp`: what a script calls, and what every command of the command line calls, too.

`verbs` attacks one model, `evaluation` fills a results folder, `rankings` ranks one, `placing` places new models.
"""
