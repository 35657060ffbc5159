//! Hand-made Arrow PyCapsules.
