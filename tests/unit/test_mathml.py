"""Equations in ASCII as MathML: every equation of the product becomes well-formed MathML that keeps
every symbol, in its order."""

import ast
import inspect
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import regard
from regard.course import LANGUAGES, chapters
from regard.views.mathml import (
    GREEK,
    LARGE_OPERATORS,
    formula_and_remark,
    looks_like_equation,
    mathml,
)
from regard.views.page import markdown_renderer

PACKAGE = Path(regard.__file__).parent
SIGNS = {"∑": "sum", "∏": "prod", "√": "sqrt", **{letter: name for name, letter in GREEK.items()}}


def equations_of_docstrings() -> list[str]:
    found = []
    for folder in ("layers", "models", "objectives", "search"):
        for path in sorted((PACKAGE / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                    lines = (ast.get_docstring(node) or "").splitlines()
                    found += [line.strip() for line in lines if looks_like_equation(line)]
    return found


def equations_of_chapters() -> list[str]:
    blocks = [
        block
        for language in LANGUAGES
        for chapter in chapters(language)
        for block in re.findall(r"^```text\n(.*?)^```", chapter.text, re.MULTILINE | re.DOTALL)
    ]
    return [line for block in blocks for line in block.splitlines() if looks_like_equation(line)]


def equations_of_worked_attentions() -> list[str]:
    from regard.views import worked_attention

    texts = re.findall(r'"([^"\n]+ = [^"\n]+)"', inspect.getsource(worked_attention))
    return [text for text in texts if looks_like_equation(text)]


EQUATIONS = sorted(
    {*equations_of_docstrings(), *equations_of_chapters(), *equations_of_worked_attentions()}
)


def symbols(text: str) -> str:
    """The letters and digits of an equation, in their order."""
    return re.sub(r"[\W_]", "", text)


def symbols_of(element: ElementTree.Element) -> str:
    """The same of MathML: each of its signs is the name that the keyboard has for it."""
    if element.tag.endswith("annotation"):
        return ""
    own = (element.text or "").strip()
    if element.tag.endswith("mover"):  # an accent is not a symbol
        return symbols_of(element[0])
    name = "sqrt" if element.tag.endswith("msqrt") else symbols(SIGNS.get(own, own))
    return name + "".join(map(symbols_of, element))


def test_there_are_equations_of_every_kind() -> None:
    assert len(EQUATIONS) > 150
    assert any("softmax" in text for text in EQUATIONS)
    assert any("sqrt(" in text for text in EQUATIONS)


@pytest.mark.parametrize("text", EQUATIONS)
def test_an_equation_is_well_formed_and_keeps_its_symbols(text: str) -> None:
    tree = ElementTree.fromstring(mathml(text))
    formula, remark = formula_and_remark(text)
    assert symbols_of(tree) == symbols(formula) + symbols(remark)
    assert tree.find(".//{*}annotation").text == text  # type: ignore[union-attr]
    assert not any(element.tag.endswith("merror") for element in tree.iter())


def drawn(text: str) -> str:
    """The elements of the formula as a short text: `frac(a)(b)`."""

    def written(element: ElementTree.Element) -> str:
        tag = element.tag.partition("}")[2]
        inside = [written(child) for child in element if not child.tag.endswith("annotation")]
        if tag in ("math", "semantics", "mrow"):
            return "".join(inside)
        if inside:
            return tag[1:] + "".join(f"({part})" for part in inside)
        return (element.text or "").strip("\N{FUNCTION APPLICATION}")

    return written(ElementTree.fromstring(mathml(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a / b", "frac(a)(b)"),
        ("exp(e) / sum_k exp(e_k)", "frac(exp(e))(under(∑)(k)exp(sub(e)(k)))"),
        ("softmax(Q K^T / sqrt(d_k)) V", "softmax(frac(Qsup(K)(T))(sqrt(sub(d)(k))))V"),
        ("2 (1 - j/J)", "2(1−frac(j)(J))"),
        ("x + y / z - w", "x+frac(y)(z)−w"),
        ("alpha_ij h_j", "sub(α)(ij)sub(h)(j)"),
        ("h~_t", "sub(over(h)(~))(t)"),
        ("c^ = max_i c_i", "over(c)(^)=under(max)(i)sub(c)(i)"),
        ("s_{i-1} . h_j", "sub(s)(i−1)⋅sub(h)(j)"),
        ("W_i^Q", "subsup(W)(i)(Q)"),
        ("y_<t", "sub(y)(<t)"),
        ("-(s - p)^2 / (2 sigma^2)", "−frac(sup((s−p))(2))((2sup(σ)(2)))"),
    ],
)
def test_the_grammar(text: str, expected: str) -> None:
    assert drawn(text).replace(" ", "") == expected


def test_symbols_have_the_colour_of_the_figure() -> None:
    tree = ElementTree.fromstring(mathml("c_i = sum_j alpha_ij h_j"))
    roles = {one.get("data-symbol"): one.get("class") for one in tree.iter() if one.get("class")}
    assert roles == {"c": "context", "alpha": "context", "h": "source"}
    assert {"sum", "prod"} == {*LARGE_OPERATORS}


@pytest.mark.parametrize(
    ("text", "apart"), [("-log sigmoid(x)", 1), ("mean_c v_c", 1), ("log(x)", 0), ("max(x, 0)", 0)]
)
def test_a_function_is_set_apart_from_an_argument_without_brackets(text: str, apart: int) -> None:
    assert mathml(text).count("<mspace") == apart


def test_labelled_formulas_are_a_table_with_rows_of_one_length() -> None:
    drawn = ElementTree.fromstring(
        markdown_renderer().render(
            "```text\nplain        softmax(X X^T) X    no parameters\n"
            "projected    softmax(Q K^T) V\nby [MASK]    the text with [MASK]\n```"
        )
    )
    rows = drawn.findall(".//tr")
    assert [row[0].text for row in rows] == ["plain", "projected", "by [MASK]"]
    assert [len(row) for row in rows] == [3, 3, 3]
    assert [row[1].find("{*}math") is not None for row in rows] == [True, True, False]


def test_labelled_sentences_stay_as_they_are() -> None:
    block = "```text\ntold before    Anna saw the bank.\ntold after     The bank flooded.\n```"
    assert markdown_renderer().render(block).startswith("<pre")


def test_sentences_and_commands_are_no_equations() -> None:
    for line in ("regard train x model.kind=rnn", "This is what the model = said here before.", ""):
        assert not looks_like_equation(line)
