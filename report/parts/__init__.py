"""Building blocks of sections: page elements, figures and data read from the folder."""
