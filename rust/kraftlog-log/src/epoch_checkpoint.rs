//! (epoch_checkpoint)
