"""One module per API key: ``handle(context, request, *, services)``; ``kraftlog.api.handler_table`` lists them."""
