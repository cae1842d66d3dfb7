"""The notation of the pages' equations, and MathML of it.

An equation is an indented line of the comment at the head of a page. Its grammar:

    line     = cell { GAP cell }              GAP: two spaces or more, outside of brackets and not before
                                              a relation, which is how pages align their signs
    cell     = { item }
    item     = scripted | operator | `code`
    scripted = base { script }
    base     = NAME | NUMBER | fence | "Σ" | "√" scripted
    fence    = "(" cell ")" | "[" cell "]" | "{" cell "}" | "⌊" cell "⌋" | "⌈" cell "⌉" | "‖" cell "‖"
    script   = "_" index | "^" exponent | "'" | superscript or subscript digits | "ᵀ"
    index    = "{" cell "}" | run { "," ( run | fence ) }           no space in it
    exponent = "{" cell "}" | "(" cell ")" | scripted where the base is e, otherwise run
    run      = letters and digits

NAME is a run of letters (Latin, Greek, ℓ, with their diacritics) and digits that begins with a letter. What
an underscore after it means goes by lengths, as nothing in a line tells an index from a word:

  - `_` and one or two letters, or digits, is indices, one a letter: a_ij, cq_ik, q_0. INDEX_WORDS has exceptions.
  - `_` and three letters or more behind one or two letters is a word as an index: N_max, w_out.
  - other names with underscores are one name: norm_gain; with indices at the end pos_bias_u is one of
    pos_bias.

A script belongs to the base that it stands at, with or without others: u_1^k, a^r_ij. The exponent of e
takes the scripts that follow: e^s_ij is e to the power of s_ij. A slash stays a slash: to make fractions
of it would say more about what it divides than the line does.

Words are names of four letters and more, and those of WORDS, which stand in no index. Symbols of up to three letters are slanted.
`|` is a sign without a partner, since it stands for bars of a size and for "or" alike.
"""
import re
from html import escape

LETTER = r"[A-Za-zΑ-ΡΤ-Ωα-ωℓ][\u0300-\u036f]*"  # Σ is a sum
NAME = rf"{LETTER}(?:{LETTER}|\d)*"
TOKEN = re.compile(rf"""
    (?P<code>`[^`]+`)
  | (?P<text>[a-z_]+\.(?:h|cpp|cu)\b | [A-Za-z][A-Za-z_]{{2,}}(?:/[A-Za-z_]{{3,}})+(?:\.[a-z]+)? | [A-Za-z]{{2,}}(?:-[A-Za-z]+)+ | (?<=\w)'s\b)
  | (?P<name>{NAME}(?:_(?:{LETTER}|\d)+)*)
  | (?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)
  | (?P<raised>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|ᵀ)
  | (?P<lowered>[₀₁₂₃₄₅₆₇₈₉]+)
  | (?P<script>[_^])
  | (?P<prime>')
  | (?P<open>[(\[{{⌊⌈]) | (?P<close>[)\]}}⌋⌉]) | (?P<norm>‖)
  | (?P<sum>Σ) | (?P<root>√)
  | (?P<operator><=|>=|:=|=:|−=|\+=|=>|…|[-=+−·×/<>≠∈∉∪⊕⊙←±|,;:.∞&])
  | (?P<space>\s+)""", re.VERBOSE)
RELATION = re.compile(r" {2,}(?=(?:=|<=|>=|:=|−=|\+=|←|∈|<|>)(?: |$))")
PAIRS = {"(": ")", "[": "]", "{": "}", "⌊": "⌋", "⌈": "⌉"}
SHOWN = {"<=": "≤", ">=": "≥", "-": "-"}
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
# Names of up to three letters that are words, and words of two letters that stand as an index.
WORDS = set("""act all an and any are as at be bit but by cos csp cut dot elu end exp for go has how if iff in
is it its key law LN log MAB max may min mod NaN no not odd of on one or own per row sin so sum the tie to too
two up way who with""".split())
INDEX_WORDS = {"pe", "qk"}
FUNCTIONS = {"log", "exp", "max", "min", "cos", "sin", "argmax", "argmin"}  # a line is not broken behind them


class NotationError(Exception):
    pass


def mathml(line):
    """The cells of a line, each as <math> elements between which a line may be broken; None for the room
    before a line that goes on."""
    line = RELATION.sub(" ", line)
    tokens = tokens_of(line)
    cells, parser = [], Parser(tokens)
    if tokens and tokens[0][0] == "space":
        cells.append(None)
        parser.at = 1
    while not parser.ended():
        cells.append(parser.cell(top=True))
        if not parser.ended():
            parser.at += 1  # a gap
    return cells


def symbol(text):
    """A piece of mathematics inside a sentence, such as z_ij."""
    return "<math>" + Parser(tokens_of(text)).cell() + "</math>"


def tokens_of(line):
    tokens, at = [], 0
    while at < len(line):
        found = TOKEN.match(line, at)
        if not found:
            raise NotationError(f"no sign of the notation: '{line[at]}' (U+{ord(line[at]):04X})")
        tokens.append((found.lastgroup, found.group()))
        at = found.end()
    return tokens


def row(parts):
    return parts[0] if len(parts) == 1 else "<mrow>" + "".join(parts) + "</mrow>"


def is_word(name):
    letters = re.sub(r"[\u0300-\u036f\d]", "", name)
    return name in WORDS or len(letters) > 3


def identifier(name):
    if is_word(name):
        return f'<mi class="w">{escape(name)}</mi>'
    return f"<mi>{escape(name)}</mi>" if len(name) == 1 else f'<mi class="s">{escape(name)}</mi>'


def index_letters(run):
    parts = re.findall(rf"\d+|{LETTER}", run)
    return row([f"<mn>{p}</mn>" if p[0].isdigit() else f"<mi>{p}</mi>" for p in parts])


def index(run):
    letters = re.sub(r"[\u0300-\u036f\d]", "", run)
    if run in INDEX_WORDS or len(letters) > 2:
        return f'<mi class="w">{escape(run)}</mi>'
    return index_letters(run)


class Parser:
    def __init__(self, tokens):
        self.tokens, self.at = tokens, 0

    def ended(self):
        return self.at == len(self.tokens)

    def kind(self):
        return None if self.ended() else self.tokens[self.at][0]

    def take(self):
        self.at += 1
        return self.tokens[self.at - 1][1]

    def cell(self, close=None, top=False):
        """Up to the closing sign, which is left; at the top up to a gap."""
        whole, parts, word, wide = [], [], None, False  # whether the item before is a word, a space follows
        comma = held = False  # whether the item before is punctuation, or a function of what follows
        while True:
            kind = self.kind()
            if kind is None:
                if close:
                    raise NotationError(f"'{close}' is missing")
                break
            text = self.tokens[self.at][1]
            if kind == "close" or kind == "norm" and close == "‖":
                if text == close:
                    break
                raise NotationError(f"'{text}' closes nothing" if not close else
                                    f"'{text}' where '{close}' was wanted")
            if kind == "space":
                if top and len(text) > 1:
                    break
                self.at += 1
                wide = True
                continue
            now, is_now_word = self.item()
            is_operator = kind == "operator"
            if top and wide and not held and (comma or word is not None and not is_operator and
                                              (word or is_now_word)):
                whole.append(parts)
                parts = []
            elif wide and word is not None and not is_operator:
                parts.append('<mspace width="0.35em"/>' if word or is_now_word else
                             '<mspace width="0.17em"/>')
            parts.append(now)
            comma = is_operator and text in ",;:"
            held = text in FUNCTIONS
            word = None if is_operator and not comma else is_now_word or is_operator
            wide = False
        if top:
            return " ".join(f'<math displaystyle="true">{row(p)}</math>' for p in whole + [parts] if p)
        return row(parts) if parts else "<mrow></mrow>"

    def item(self):
        """MathML of the next item, and whether it is a word."""
        kind = self.kind()
        if kind == "code":
            return f'<mtext class="c">{escape(self.take()[1:-1])}</mtext>', True
        if kind == "text":
            return f"<mtext>{escape(self.take())}</mtext>", True
        if kind == "operator":
            sign = self.take()
            extra = ' stretchy="false" lspace="0.1em" rspace="0.1em"' if sign == "|" else ""
            return f"<mo{extra}>{escape(SHOWN.get(sign, sign))}</mo>", False
        return self.scripted()

    def fence(self):
        sign = self.take()
        close = PAIRS.get(sign, sign)
        inside = self.cell(close)
        self.take()
        return sign, inside, close

    @staticmethod
    def fenced(sign, inside, close):
        return (f'<mrow><mo stretchy="false">{sign}</mo>{inside}<mo stretchy="false">{close}</mo></mrow>')

    def scripted(self):
        kind = self.kind()
        under, below, above, word, exponential = False, [], [], False, False
        if kind == "number":
            base = f"<mn>{self.take()}</mn>"
        elif kind in ("open", "norm"):
            base = self.fenced(*self.fence())
        elif kind == "root":
            self.take()
            base = f"<msqrt>{self.scripted()[0]}</msqrt>"
        elif kind == "sum":
            self.take()
            base, under = '<mo movablelimits="false">∑</mo>', True
        elif kind == "name":
            name = self.take()
            exponential = name == "e"
            parts = name.split("_")
            if len(parts) > 1 and len(re.sub(r"[\u0300-\u036f\d]", "", parts[-1])) <= 2 and \
                    parts[-1] not in INDEX_WORDS:
                base, below = identifier("_".join(parts[:-1])), [index_letters(parts[-1])]
            elif len(parts) > 1 and len(re.sub(r"[\u0300-\u036f\d]", "", parts[0])) <= 2:
                base, below = identifier(parts[0]), [f'<mi class="w">{" ".join(parts[1:])}</mi>']
            else:
                base, word = identifier(name), is_word(name)
        else:
            raise NotationError(f"'{self.tokens[self.at][1]}' stands at nothing")
        while self.kind() in ("script", "prime", "raised", "lowered"):
            kind, text = self.kind(), self.take()
            if kind == "prime":
                above.append("<mo>′</mo>")
            elif kind == "raised":
                above.append("<mi>T</mi>" if text == "ᵀ" else f"<mn>{text.translate(RAISED)}</mn>")
            elif kind == "lowered":
                below.append(f"<mn>{text.translate(LOWERED)}</mn>")
            elif text == "_":
                below.append(self.index())
            else:
                above.append(self.exponent(exponential, below))
        if self.kind() == "operator" and self.tokens[self.at][1] == "," and below and \
                self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][0] in ("name", "open"):
            self.take()  # a_s,null and y_i,⌊j/a⌋
            more = index(self.take()) if self.kind() == "name" else self.fenced(*self.fence())
            below.append("<mo>,</mo>" + more)
        if not below and not above:
            return base, word
        low, high = row(below) if below else "", row(above) if above else ""
        if len(below) == 1 and low.startswith("<mo>,"):
            low = f"<mrow>{low}</mrow>"
        tag = {(True, True): "munderover" if under else "msubsup", (True, False): "munder" if under else
               "msub", (False, True): "mover" if under else "msup"}[bool(below), bool(above)]
        return f"<{tag}>{base}{low}{high}</{tag}>", False

    def index(self):
        if self.kind() == "open" and self.tokens[self.at][1] == "{":
            return self.fence()[1]
        if self.kind() in ("name", "number"):
            run = self.take()
            if "_" in run:
                raise NotationError(f"an index with an index: '_{run}'; write _{{…}}")
            return index(run)
        raise NotationError("'_' without an index")

    def exponent(self, exponential, below):
        kind = self.kind()
        if kind == "open" and self.tokens[self.at][1] in "({":
            return self.fence()[1]
        if kind == "name" and not exponential:
            run, *indices = self.take().split("_")
            if indices:  # a^r_ij
                below.extend(index(i) for i in indices)
            return index(run) if len(run) > 1 else f"<mi>{run}</mi>"
        if kind in ("name", "number"):
            return self.scripted()[0]
        raise NotationError("'^' without an exponent")
