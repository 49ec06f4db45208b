import pytest

from hpckit.collections import search_path
from hpckit.render import list_templates
from hpckit.render.quoting import quoted_expression

FAULTS = [
    ('echo "{{ x }}"', 1),
    ("a\nb='{{ x }}'", 2),
    ('echo "a {{ x }} b"', 1),
    ("echo `ls {{ x }}`", 1),
    ("cat <<EOF\n{{ x }}\nEOF", 2),
    ("cat <<'EOF'\na\n{{ x }}\nEOF", 3),
    ("cat <<-EOF\n\t{{ x }}\n\tEOF", 2),
    ('echo "$(ls {{ x }})"', 1),
    ('echo "a\n\n{{ x }}"', 3),
    ("{% if a %}\n'{{ x }}'\n{% endif %}", 2),
    ("{#\n\n#}'{{ x }}'", 3),
    ('echo "it\'s {{ x }}"', 1),
    ('echo "a\\"{{ x }}"', 1),
    ("a=1 # it's\nb='{{ x }}'", 2),
    ("echo \\'\n'{{ x }}'", 2),
]
FINE = [
    "echo {{ x }}",
    'echo "a" {{ x }} "b"',
    "echo 'a'{{ x }}'b'",
    "# it's {{ x }}",
    'echo a # "{{ x }}',
    'echo \\"{{ x }}',
    "echo $(ls {{ x }})",
    "cat <<EOF\nhi\nEOF\necho {{ x }}",
    "{# '{{ x }}' #}",
    "{% if 'a' == \"b\" %}{{ x }}{% endif %}",
    "echo ${a#b} {{ x }}",
    'echo "${a}" {{ x }}',
    "#SBATCH --x={{ x }}",
    "a=${#b} {{ x }} # don't",
    "echo {{ 'a' }} {{ \"b\" }}",
    "",
]


@pytest.mark.parametrize(("source", "line"), FAULTS)
def test_an_expression_in_quotes_is_found_with_its_line(source: str, line: int) -> None:
    assert quoted_expression(source) == (line, "{{ x }}")


@pytest.mark.parametrize("source", FINE)
def test_expressions_outside_quotes_pass(source: str) -> None:
    assert quoted_expression(source) is None


def test_the_first_of_several_is_named() -> None:
    assert quoted_expression("{{ a }} '{{ b }}' '{{ c }}'") == (1, "{{ b }}")


def test_the_templates_that_are_shipped_pass() -> None:
    for found in list_templates(search_path()).values():
        assert quoted_expression(found.path.read_text()) is None, found.name
