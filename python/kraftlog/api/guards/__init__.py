"""Who may ask what: guards around the handlers of a node with an authorizer; see ``guard_table``."""
