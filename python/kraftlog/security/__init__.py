"""Who asks and what may be asked: values only, so that every room can name them."""
