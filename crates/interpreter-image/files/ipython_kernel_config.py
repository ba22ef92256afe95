"""How the kernel of the code interpreter differs from a plain one."""

c = get_config()  # noqa: F821

c.InteractiveShellApp.extensions = ["atoll_display"]
# Collections are shown whole; clients cut them if they like.
c.PlainTextFormatter.max_seq_length = 0
# A history on disk costs time with every execution and helps nobody.
c.HistoryManager.hist_file = ":memory:"
