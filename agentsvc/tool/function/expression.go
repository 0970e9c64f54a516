package function

import (
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"
)

// Bounds of an expression, which bound the time and memory of its exact evaluation.
const (
	// maxExpression bounds its length in bytes.
	maxExpression = 1000
	// maxDepth bounds the nesting of parentheses, signs and powers, i.e. the parser's recursion.
	maxDepth = 50
	// maxBits bounds numerator and denominator of every intermediate value.
	maxBits = 4096
	// maxExponent bounds the decimal exponent of a number.
	maxExponent = 1000
)

// evaluateExpression returns the exact value of an expression, see [mathFunctions] for the inexact functions. The
// grammar is:
//
//	sum     = product { ("+" | "-") product }
//	product = sign { ("*" | "/" | "%") sign }
//	sign    = ("+" | "-") sign | power
//	power   = operand [ ("^" | "**") sign ]
//	operand = number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
//
// An error names the character of the mistake, counted from 1.
func evaluateExpression(expression string) (*big.Rat, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d characters", maxExpression)
	}
	p := &expressionParser{text: expression}
	value, err := p.parseSum()
	if err != nil {
		return nil, err
	}
	// A complete sum may be followed by nothing else.
	if c := p.peekChar(); c != "" {
		return nil, p.newError("expected an operator or the end, found %q", c)
	}
	return value, nil
}

// expressionParser parses and evaluates in one pass, by recursive descent: each parse method reads one rule of the
// grammar, leaves pos behind it and returns its value. An error ends the evaluation.
type expressionParser struct {
	text string
	// pos is the offset in bytes of the next character; depth is the present nesting.
	pos   int
	depth int
}

// newError returns an error at the present position.
func (p *expressionParser) newError(format string, args ...any) error {
	return p.newErrorAt(p.pos, format, args...)
}

// newErrorAt returns an error at byte offset at, reported as a character number from 1.
func (p *expressionParser) newErrorAt(at int, format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", utf8.RuneCountInString(p.text[:at])+1, fmt.Sprintf(format, args...))
}

// peekChar skips white space and returns the next character, "" at the end.
func (p *expressionParser) peekChar() string {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
	_, n := utf8.DecodeRuneInString(p.text[p.pos:])
	return p.text[p.pos : p.pos+n]
}

// consumeToken skips white space and the first of tokens that follows, and returns that token, "" if none follows.
func (p *expressionParser) consumeToken(tokens ...string) string {
	p.peekChar()
	for _, t := range tokens {
		if strings.HasPrefix(p.text[p.pos:], t) {
			p.pos += len(t)
			return t
		}
	}
	return ""
}

// enterLevel counts a level of nesting; the returned function ends it.
func (p *expressionParser) enterLevel() (exitLevel func(), err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.newError("the expression is nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }, nil
}

// parseSum parses the rule "sum". Each result is checked by checkSize before it is used, so that the cost of the next
// operation is bounded. It is also the entry of every nested expression, and therefore counts a level.
func (p *expressionParser) parseSum() (*big.Rat, error) {
	exitLevel, err := p.enterLevel()
	if err != nil {
		return nil, err
	}
	defer exitLevel()
	// Operators of equal precedence associate to the left: the loop extends left.
	left, err := p.parseProduct()
	for err == nil {
		at := p.pos
		op := p.consumeToken("+", "-", "−")
		if op == "" {
			return left, nil
		}
		var right *big.Rat
		if right, err = p.parseProduct(); err != nil {
			break
		}
		if op == "+" {
			left = new(big.Rat).Add(left, right)
		} else {
			left = new(big.Rat).Sub(left, right)
		}
		err = p.checkSize(at, left)
	}
	return nil, err
}

// parseProduct parses the rule "product". "**" belongs to a power, not to a product. The signs × and ÷ are accepted in
// addition to * and /.
func (p *expressionParser) parseProduct() (*big.Rat, error) {
	left, err := p.parseSign()
	for err == nil {
		// "**" must not be read as "*" followed by "*".
		if next := p.peekChar(); strings.HasPrefix(p.text[p.pos:], "**") || next == "" {
			return left, nil
		}
		at := p.pos
		// The signs × and ÷ are accepted because models write them.
		op := p.consumeToken("*", "×", "/", "÷", "%")
		if op == "" {
			return left, nil
		}
		var right *big.Rat
		if right, err = p.parseSign(); err != nil {
			break
		}
		left, err = p.applyOperator(at, op, left, right)
	}
	return nil, err
}

// applyOperator returns the result of *, / or %.
func (p *expressionParser) applyOperator(at int, op string, left, right *big.Rat) (*big.Rat, error) {
	// Only multiplication is defined for zero.
	if op != "*" && op != "×" && right.Sign() == 0 {
		return nil, p.newErrorAt(at, "division by zero")
	}
	var out *big.Rat
	switch op {
	case "*", "×":
		out = new(big.Rat).Mul(left, right)
	case "%":
		out = remainderRat(left, right)
	default:
		out = new(big.Rat).Quo(left, right)
	}
	return out, p.checkSize(at, out)
}

// parseSign parses the rule "sign".
func (p *expressionParser) parseSign() (*big.Rat, error) {
	op := p.consumeToken("+", "-", "−")
	if op == "" {
		return p.parsePower()
	}
	exitLevel, err := p.enterLevel()
	if err != nil {
		return nil, err
	}
	defer exitLevel()
	// A sign may be followed by another one, e.g. --3.
	value, err := p.parseSign()
	if err == nil && op != "+" {
		value = new(big.Rat).Neg(value)
	}
	return value, err
}

// parsePower parses the rule "power". The exponent is a "sign", so powers associate to the right and may be negative;
// each power counts a level, because it recurses.
func (p *expressionParser) parsePower() (*big.Rat, error) {
	base, err := p.parseOperand()
	if err != nil {
		return nil, err
	}
	p.peekChar()
	at := p.pos
	if p.consumeToken("^", "**") == "" {
		return base, nil
	}
	exitLevel, err := p.enterLevel()
	if err != nil {
		return nil, err
	}
	defer exitLevel()
	exponent, err := p.parseSign()
	if err != nil {
		return nil, err
	}
	// powRat bounds its result itself; checkSize then applies the stricter bound.
	value, err := powRat(base, exponent)
	if err != nil {
		return nil, p.newErrorAt(at, "%v", err)
	}
	return value, p.checkSize(at, value)
}

// parseOperand parses the rule "operand".
func (p *expressionParser) parseOperand() (*big.Rat, error) {
	next := p.peekChar()
	switch {
	case next == "":
		return nil, p.newError("expected a number, found the end")
	case next == "(":
		p.pos++
		value, err := p.parseSum()
		if err != nil {
			return nil, err
		}
		if p.consumeToken(")") == "" {
			return nil, p.missingTokenError(")")
		}
		return value, nil
	// The first byte suffices: all tokens begin with ASCII, or with one of the signs above.
	case isDigit(next[0]) || next == ".":
		return p.parseNumber()
	case isLetter(next[0]):
		return p.parseName()
	}
	return nil, p.newError("expected a number, found %q", next)
}

// missingTokenError returns an error that names the expected token and what was found instead.
func (p *expressionParser) missingTokenError(what string) error {
	if found := p.peekChar(); found != "" {
		return p.newError("expected %q, found %q", what, found)
	}
	return p.newError("expected %q, found the end", what)
}

// parseNumber parses digits with an optional point, decimal exponent and underscores. The exponent is checked before
// the number is built exactly.
func (p *expressionParser) parseNumber() (*big.Rat, error) {
	start := p.pos
	// Underscores group digits, as in Go.
	digits := func() {
		for p.pos < len(p.text) && (isDigit(p.text[p.pos]) || p.text[p.pos] == '_') {
			p.pos++
		}
	}
	digits()
	if p.pos < len(p.text) && p.text[p.pos] == '.' {
		p.pos++
		digits()
	}
	if p.pos < len(p.text) && (p.text[p.pos] == 'e' || p.text[p.pos] == 'E') {
		mark := p.pos
		p.pos++
		if p.pos < len(p.text) && (p.text[p.pos] == '+' || p.text[p.pos] == '-') {
			p.pos++
		}
		first := p.pos
		digits()
		if p.pos == first {
			p.pos = mark // the e is not part of the number
		}
	}
	text := strings.ReplaceAll(p.text[start:p.pos], "_", "")
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		var n int
		if _, err := fmt.Sscan(exponent, &n); err != nil || n > maxExponent || n < -maxExponent {
			return nil, p.newErrorAt(start, "the exponent of %s is beyond %d", text, maxExponent)
		}
	}
	// SetString reads decimals exactly: 0.1 is one tenth.
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, p.newErrorAt(start, "%q is no number", p.text[start:p.pos])
	}
	return value, p.checkSize(start, value)
}

// parseName parses a constant, or a function with its arguments. Each argument is a "sum", which parseSum counts as a
// level of nesting.
func (p *expressionParser) parseName() (*big.Rat, error) {
	start := p.pos
	for p.pos < len(p.text) && (isLetter(p.text[p.pos]) || isDigit(p.text[p.pos])) {
		p.pos++
	}
	// Names are not case-sensitive.
	name := strings.ToLower(p.text[start:p.pos])
	// The shared constant is never changed: every operation makes a new Rat.
	if value, ok := constants[name]; ok {
		return value, nil
	}
	// The error lists all names, so that the model can correct the expression.
	fn, ok := mathFunctions[name]
	if !ok {
		return nil, p.newErrorAt(start, "unknown name %q; there are pi, e, %s", name, functionNames())
	}
	if p.consumeToken("(") == "" {
		return nil, p.missingTokenError("(")
	}
	var args []*big.Rat
	// Arguments, separated by commas, up to the closing parenthesis.
	for {
		arg, err := p.parseSum()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		if p.consumeToken(",") != "" {
			continue
		}
		if p.consumeToken(")") == "" {
			return nil, p.missingTokenError(")")
		}
		break
	}
	// The arity is checked after parsing, so that the error can name the number of arguments.
	if len(args) < fn.minArgs || len(args) > fn.maxArgs {
		return nil, p.newErrorAt(start, "%s takes %s, not %d", name, fn.describeArity(), len(args))
	}
	value, err := fn.compute(args)
	if err != nil {
		return nil, p.newErrorAt(start, "%s: %v", name, err)
	}
	return value, p.checkSize(start, value)
}

// checkSize returns an error for a value whose numerator or denominator has more than maxBits bits: repeated powers and
// fractions would otherwise fill the memory.
func (p *expressionParser) checkSize(at int, value *big.Rat) error {
	if value.Num().BitLen() > maxBits || value.Denom().BitLen() > maxBits {
		return p.newErrorAt(at, "the value is too large or too finely divided")
	}
	return nil
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
