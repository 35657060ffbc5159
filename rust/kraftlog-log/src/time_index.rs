//! (time_index)
