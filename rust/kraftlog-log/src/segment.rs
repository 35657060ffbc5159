//! (segment)
