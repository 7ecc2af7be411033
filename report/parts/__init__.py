"""Building blocks of report sections: page elements, figures, sentences, and data read from the folder."""
