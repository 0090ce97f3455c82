"""Equations in ASCII, as docstrings have them, as MathML, which browsers draw without a library.

The notation is that of the papers typed on a keyboard: `alpha_ij = exp(e_ij) / sum_k exp(e_ik)`. What
stands behind three spaces is a remark. Whatever the grammar does not know is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

Roles = Mapping[str, str]
"""A symbol, with its index (`h_s`) or without it (`h`) -> the colour of the figure."""

ROLES: Roles = {
    **dict.fromkeys(["h_j", "h_s", "h", "x", "k", "K", "k_j", "V", "v_j", "a_i", "m_i"], "source"),
    **dict.fromkeys(["s", "q", "Q", "y", "u", "h~"], "target"),
    **dict.fromkeys(["c", "alpha", "z", "o", "p_i"], "context"),
}
GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
    "theta": "θ",
    "lambda": "λ",
    "mu": "μ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "Phi": "Φ",
    "omega": "ω",
    "Delta": "Δ",
}
LARGE_OPERATORS = {"sum": "∑", "prod": "∏"}
UNDER = ("max", "min", "argmax", "mean")
"""Functions whose index stands below them."""
APART = ("log", "ln", "exp", *UNDER)
"""Functions that are set apart from an argument without brackets."""
OPERATORS = {
    "->": "→",
    "<=": "≤",
    ">=": "≥",
    "!=": "≠",
    "...": "…",
    "-": "−",
    "*": "∗",
    "||": "‖",
}
TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>\d+(?:[.,]\d+)*(?:e-?\d+)?)
  | (?P<name>[^\W\d_]+~?)
  | (?P<script>[_^])
  | (?P<operator>->|<=|>=|!=|\.\.\.|\|\||'+|.)
    """,
    re.VERBOSE,
)
SCRIPT = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|\[[A-Z]+\]|[<>]?=?-?[^\W_]+'?|\*|[^\s]")
REMARK = re.compile(r"\s{3,}")
OPENING = {"(": ")", "[": "]", "{": "}"}
WEAK = frozenset(
    ["=", "+", ",", ";", "|", "→", "<", ">", "≤", "≥", "≠", ":", "…", "?", "in", "for"]
)
"""What ends a numerator and a denominator; a minus sign, too, unless it is a sign."""


def mathml(text: str, roles: Roles = ROLES) -> str:
    """An equation as a `<math>` element, in one line."""
    formula, remark = formula_and_remark(text)
    body = _Parser(formula, roles).row()
    if remark:
        body += f'<mspace width="2em"/><mtext class="remark">{escape(remark)}</mtext>'
    return (
        (
            '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">'
            f'<mrow>{body}</mrow><annotation encoding="text/plain">{escape(text)}</annotation></math>'
        )
        .replace("<mrow>", "<semantics><mrow>", 1)
        .replace("</math>", "</semantics></math>")
    )


def formula_and_remark(line: str) -> tuple[str, str]:
    """A line without the spaces that align its sign, and the remark behind it."""
    left, sign, right = line.strip().partition("= ")
    if not sign or REMARK.search(left.rstrip()):  # the sign belongs to the remark
        formula, *remarks = REMARK.split(line.strip(), maxsplit=1)
    else:
        formula, *remarks = REMARK.split(right.strip(), maxsplit=1)
        formula = f"{left.rstrip()} {sign}{formula}".strip()
    return formula, "".join(remarks).strip()


def looks_like_equation(line: str) -> bool:
    """Whether a line of a text block is an equation: it assigns, and is not a sentence or a command."""
    formula, _ = formula_and_remark(line)
    left, sign, right = formula.partition(" = ")
    words = re.findall(r"(?<![\w_^~])[a-z]{4,}(?![\w(_])", formula)
    return bool(sign and left and right) and len(left.split()) <= 8 and len(words) <= 2


def looks_like_formula(text: str) -> bool:
    """Whether a cell of a text block is an equation, or a term of functions without words."""
    words = re.findall(r"(?<![\w_^~\[])[^\W\d_]{2,}(?![\w(_])", text)
    return looks_like_equation(text) or (bool(re.match(r"\w+\(", text)) and not words)


class _Parser:
    """Reads an equation from left to right; each method returns the MathML of what it has read."""

    def __init__(self, text: str, roles: Roles) -> None:
        self.roles = roles
        self.text = text
        self.place = 0

    # Tokens

    def peek(self) -> tuple[str, str]:
        """The kind and the text of the next token that is not a space; empty at the end."""
        while match := TOKEN.match(self.text, self.place):
            if match.lastgroup != "space":
                return str(match.lastgroup), match[0]
            self.place = match.end()
        return "", ""

    def take(self) -> str:
        kind, text = self.peek()
        if kind:
            self.place += len(text)
        return text

    @property
    def tight(self) -> bool:
        """Whether no space stands before the next token."""
        return self.place < len(self.text) and not self.text[self.place].isspace()

    # Grammar

    def row(self, closing: str = "") -> str:
        """Terms and the signs between them, up to a closing bracket or the end."""
        parts = list[str]()
        term = list[str]()
        while True:
            kind, text = self.peek()
            if not kind or (closing and text == closing):
                break
            if kind == "operator" and self.ends_term(text, term):
                parts += term
                term = []
                parts.append(self.operator())
            elif text == "/" and term:
                term = [self.fraction(term)]
            else:
                term.append(self.factor())
        return "".join([*parts, *term])

    def ends_term(self, text: str, term: list[str]) -> bool:
        return OPERATORS.get(text, text) in WEAK or text == "-"

    def fraction(self, above: list[str]) -> str:
        """What stands before the slash, over what follows it; a slash without spaces takes the
        neighbours only."""
        tight = self.tight
        self.take()
        tight = tight and self.tight
        kept: list[str] = []
        if tight:
            *kept, last = above
            if kept and last.startswith("<mi") and kept[-1].startswith("<mn"):
                last = kept.pop() + last
            above = [last]
        below = list[str]()
        while self.peek()[0] and not self.stops_denominator(below, tight=tight):
            below.append(self.factor())
        return (
            "".join(kept)
            + f"<mfrac><mrow>{''.join(above)}</mrow><mrow>{''.join(below)}</mrow></mfrac>"
        )

    def stops_denominator(self, below: list[str], *, tight: bool) -> bool:
        _, text = self.peek()
        shown = OPERATORS.get(text, text)
        return (
            shown in WEAK
            or text in (")", "]", "}", "/", ".", "*")
            or (bool(below) and (tight or text == "-"))
        )

    def factor(self) -> str:
        kind, text = self.peek()
        if kind == "number":
            return self.scripted(f"<mn>{self.take()}</mn>", text)
        if kind == "name":
            drawn = self.name()
            apart = text in APART and self.peek()[0] in ("name", "number")
            return drawn + '<mspace width="0.2em"/>' if apart else drawn
        if text in OPENING:
            return self.scripted(self.bracket(), "")
        return self.operator()

    def bracket(self) -> str:
        opening = self.take()
        inside = self.row(OPENING[opening])
        closing = self.take() if self.peek()[1] == OPENING[opening] else ""
        tall = 'stretchy="true"' if "<mfrac" in inside or "<mo>∑" in inside else 'stretchy="false"'
        closed = f"<mo {tall}>{closing}</mo>" if closing else ""
        return f"<mrow><mo {tall}>{opening}</mo>{inside}{closed}</mrow>"

    def operator(self) -> str:
        text = self.take()
        if text == "." and self.spaced():
            return "<mo>⋅</mo>"
        return f"<mo>{escape(OPERATORS.get(text, text))}</mo>"

    def spaced(self) -> bool:
        """Whether the token just read stood between spaces: a dot is then a product."""
        return self.text[self.place - 2 : self.place - 1].isspace()

    def name(self) -> str:
        text = self.take()
        if text == "sqrt" and self.peek()[1] == "(":
            self.take()
            inside = self.row(")")
            self.take()
            return self.scripted(f"<msqrt><mrow>{inside}</mrow></msqrt>", "")
        if text in LARGE_OPERATORS:
            return self.scripted(f"<mo>{LARGE_OPERATORS[text]}</mo>", text, under=True)
        if text.endswith("~"):
            base = f'<mover accent="true"><mi>{escape(text[:-1])}</mi><mo>~</mo></mover>'
        else:
            base = f"<mi>{escape(GREEK.get(text, text))}</mi>"
        if len(text) > 1 and text not in GREEK and self.text[self.place : self.place + 1] == "(":
            base += "<mo>&#x2061;</mo>"  # the sign of applying a function, which is not drawn
            return base
        return self.scripted(base, text, under=text in UNDER)

    # Indices

    def scripted(self, base: str, symbol: str, *, under: bool = False) -> str:
        """The base with what stands below and above it, in the colour of the symbol."""
        scripts = {"_": "", "^": ""}
        whole = symbol
        while self.text[self.place : self.place + 1] in ("_", "^", "'"):
            mark = self.text[self.place]
            if mark == "'":
                self.place += 1
                scripts["^"] += "<mo>′</mo>"
                continue
            found = SCRIPT.match(self.text, self.place + 1)
            if mark == "^" and self.text[self.place + 1 : self.place + 2].strip() == "":
                self.place += 1  # nothing stands above it: a hat
                base = f'<mover accent="true">{base}<mo>^</mo></mover>'
                continue
            if found is None or scripts[mark]:
                break
            self.place = found.end()
            inside = found[1] if found[1] is not None else found[0]
            whole += mark + found[0]
            scripts[mark] = _script(inside, self.roles)
        drawn = _joined(base, scripts["_"], scripts["^"], under=under)
        role = self.roles.get(whole.partition("^")[0]) or self.roles.get(symbol)
        if not role:
            return drawn
        return f'<mrow class="{role}" data-symbol="{escape(symbol)}">{drawn}</mrow>'


def _joined(base: str, below: str, above: str, *, under: bool) -> str:
    if not below and not above:
        return base
    name = {
        (True, False): "munder" if under else "msub",
        (False, True): "msup",
        (True, True): "munderover" if under else "msubsup",
    }[bool(below), bool(above)]
    return f"<{name}>{base}{below}{above}</{name}>"


def _script(text: str, roles: Roles) -> str:
    """An index: letters side by side are several (`ij`), a word is one (`last`)."""
    letters = re.fullmatch(r"([<>]?=?)([a-zA-Z]{2,3})('?)", text)
    if letters and letters[2] not in (*GREEK, "new", "out", "cos", "max", "min"):
        sign = f"<mo>{escape(letters[1])}</mo>" if letters[1] else ""
        prime = "<mo>′</mo>" if letters[3] else ""
        return f"<mrow>{sign}{''.join(f'<mi>{one}</mi>' for one in letters[2])}{prime}</mrow>"
    return f"<mrow>{_Parser(text, {}).row()}</mrow>"
