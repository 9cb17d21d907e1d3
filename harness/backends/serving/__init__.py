"""A small engine that serves a GPT: prefill on host 0, decode on all other hosts together; caches are sent between
them."""
