"""Groups of consumers: the classic protocol, and the offsets that groups commit."""
