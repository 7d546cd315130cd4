-- What a user of Neovim does: hints, lenses, a code action, and one undo. Prints what it sees.
local function log(...) io.stdout:write(table.concat(vim.tbl_map(tostring, { ... }), "\t") .. "\n") end
local function line(number) return vim.api.nvim_buf_get_lines(0, number, number + 1, false)[1] end
vim.o.swapfile = false
vim.api.nvim_create_autocmd("VimEnter", { callback = function() vim.schedule(function()
  local ok, problem = pcall(function()
    local id = vim.lsp.start({ name = "pyprof2", cmd = vim.json.decode(vim.env.SERVER), root_dir = vim.fn.getcwd() })
    local function client() return vim.lsp.get_client_by_id(id) end
    assert(vim.wait(60000, function() return client() and client().initialized end, 50), "no server")
    vim.lsp.inlay_hint.enable(true, { bufnr = 0 })
    assert(vim.wait(90000, function() return #vim.lsp.inlay_hint.get({ bufnr = 0 }) > 0 end, 100), "no hints")
    vim.cmd("redraw")
    vim.wait(500)
    for name, space in pairs(vim.api.nvim_get_namespaces()) do
      if name:match("inlayhint") then
        for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true })) do
          local text = ""
          for _, part in ipairs(mark[4].virt_text or {}) do text = text .. part[1] end
          log("drawn", mark[2] + 1, mark[3], vim.trim(text))
        end
      end
    end
    local found = vim.lsp.buf_request_sync(0, "textDocument/codeLens",
      { textDocument = vim.lsp.util.make_text_document_params() }, 20000)
    log("lenses", #found[id].result)
    local before = line(1)
    vim.api.nvim_win_set_cursor(0, { 2, 0 })
    vim.lsp.buf.code_action({ apply = true, filter = function(each) return each.title:match("→ 64") end })
    assert(vim.wait(20000, function() return line(1) ~= before end, 20), "no edit")
    log("edited", line(1))
    vim.cmd("silent undo")
    log("undone", line(1) == before)
    local answer = vim.lsp.buf_request_sync(0, "workspace/executeCommand",
      { command = "pyprof2.setBatchSize", arguments = { 96 } }, 20000)
    log("command", answer[id].result.ok, line(1))
    vim.cmd("silent undo")
    log("undone", line(1) == before)
    log("encoding", client().offset_encoding)
  end)
  if not ok then log("failed", problem) end
  vim.cmd("qa!")
end) end })
