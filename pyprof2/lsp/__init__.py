"""The editor's server: costs beside the lines, and the batch size in the code.

`pyprof2 lsp` speaks the Language Server Protocol over stdin and stdout. Nothing else imports this
package, and only `pyprof2.lsp.server` and what stands beside it for the protocol need pygls. What
takes long runs in processes of its own (`pyprof2.lsp.worker`), never inside a request.
"""
