//! (producer_state)
