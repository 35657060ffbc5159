"""Messages between replicas: one module per API has both directions of its request and its response.

A new field of an API touches its module alone; ``table`` lists the modules and finds the one for a message.
"""
