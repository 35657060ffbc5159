"""The protocol: typed messages, their codec, frames and record framing."""
