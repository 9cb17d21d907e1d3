"""A small engine that serves a GPT: prefill on host 0, decode on all others together, caches sent between them."""
