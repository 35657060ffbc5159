//! (batch)
