"""Questions put to a model or to a finished cell, to find out whether its robustness is real."""
