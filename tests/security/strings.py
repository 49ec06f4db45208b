# ruff: noqa: E501
"""Text that a shell, sbatch, a template or a terminal could take for something else."""

PRINTABLE = [
    "$(touch owned)", "`touch owned`", "${HOME}", "$HOME", "$((1+1))", "$'\\x41'", "$\"x\"",
    "a;touch owned", "a && touch owned", "a || touch owned", "a | tee owned", "a & touch owned",
    "a > owned", "a >> owned", "a < /etc/passwd", "<(touch owned)", "<<EOF", "<<<x", "2>owned",
    "it's", "'", "''", "'; touch owned; '", '"', '"; touch owned; "', "'\"'\"'", "\\'", "\\\"",
    "\\", "a\\", "\\\\", "a\\ b", "\\n", "x\\' --account=evil #", "x\\\" --uid=0 '", "\\';touch owned",
    "#", "a #b", "# SBATCH", "#SBATCH --uid=0", " --uid=0", "-x", "--", "--help", "-", "--wrap=id",
    "*", "?", "[a-z]", "{a,b}", "~", "~root", "~nobody-of-that-name/x", "'$(touch owned)'", "a'b\"c`d$e", "%%", "$0 $@ $*", "\\$(touch owned)", "!", "!!", "!-1", "^a^b", "=", "a=b", "%j", "%x_%a",
    "100%", " ", "a b", " a", "a ", "\t", "a\tb", "(", ")", "()", "(touch owned)", "{ touch owned; }",
    "[[ x", "fi", "done", "esac", "then", "}", "EOF", "set +e", "exit 0", "{{ 7 * 7 }}", "{% raw %}",
    "{# x #}", "{{ refuse('x') }}", "&amp;", "<b>", "é", "naïve", "日本語", "🚀", "Ω≈ç√", "a\u0301",
    "a" * 3000, "x,y", "x:y", "../../etc", "%s%n", "NaN", "null", "-1", "1e9",
]  # fmt: skip
# Nothing quotes these in a comment or an #SBATCH line.
UNPRINTABLE = [
    "a\nb", "a\n#SBATCH --uid=0", "\n", "a\r\nb", "\r", "\x00", "a\x00b", "\x1b[31m", "\x1b]0;x\x07",
    "\x07", "\x08", "\x0b", "\x0c", "\x7f", "\x85", "\x9b31m", "\u2028", "\u2029", "\u202e", "\u2066",
    "\u200b", "\ufeff", "\U000e0041", "\udcff", "\ud800", "\ue000",
]  # fmt: skip
