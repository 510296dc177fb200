"""The explorer: a local server with the report's pages, live, for any model that opens. `pathsum explore` starts it.

application(models)    the FastAPI application: routes of `pages` (HTML) and `api` (JSON, typed)
guard                  who may ask at all: Host, Origin, token, sizes; headers of every answer
Ask                    what is computed, as data; its digest is where the answer is kept
Jobs, worker, Cache    long answers: a process each, one at a time per model, kept on disk
"""
