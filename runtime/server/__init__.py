"""The model behind the OpenAI API: HTTP requests in, text out, many at once.

`app.create_app` makes the FastAPI application over a `Service`, which owns the tokenizer, the template and the
scheduler's thread. Nothing here touches the model; one thread does (`engine`).
"""
