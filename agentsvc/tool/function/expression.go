package function

import (
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"
)

// Bounds of an expression.
const (
	maxExpression = 1000 // bytes
	maxDepth      = 50   // of parentheses, signs and powers within each other
	maxBits       = 4096 // of a numerator or denominator
	maxExponent   = 1000 // of a number's decimal exponent
)

// evaluateExpression returns the value of an expression:
//
//	sum     = product { ("+" | "-") product }
//	product = sign { ("*" | "/" | "%") sign }
//	sign    = ("+" | "-") sign | power
//	power   = operand [ ("^" | "**") sign ]
//	operand = number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
//
// An error says at which character of it something is wrong, counted from 1.
func evaluateExpression(expression string) (*big.Rat, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d characters", maxExpression)
	}
	p := &expressionParser{text: expression}
	value, err := p.parseSum()
	if err != nil {
		return nil, err
	}
	if c := p.peekChar(); c != "" {
		return nil, p.newError("expected an operator or the end, found %q", c)
	}
	return value, nil
}

// expressionParser reads and evaluates at once.
type expressionParser struct {
	text  string
	pos   int // byte
	depth int
}

func (p *expressionParser) newError(format string, args ...any) error {
	return p.newErrorAt(p.pos, format, args...)
}

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

// consumeToken skips the first of tokens that comes next and returns it, "" if none does.
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

// enterLevel enters a level of nesting; the function it returns leaves it.
func (p *expressionParser) enterLevel() (exitLevel func(), err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.newError("the expression is nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }, nil
}

func (p *expressionParser) parseSum() (*big.Rat, error) {
	exitLevel, err := p.enterLevel()
	if err != nil {
		return nil, err
	}
	defer exitLevel()
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

func (p *expressionParser) parseProduct() (*big.Rat, error) {
	left, err := p.parseSign()
	for err == nil {
		if next := p.peekChar(); strings.HasPrefix(p.text[p.pos:], "**") || next == "" {
			return left, nil
		}
		at := p.pos
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

func (p *expressionParser) applyOperator(at int, op string, left, right *big.Rat) (*big.Rat, error) {
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
	value, err := p.parseSign()
	if err == nil && op != "+" {
		value = new(big.Rat).Neg(value)
	}
	return value, err
}

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
	value, err := powRat(base, exponent)
	if err != nil {
		return nil, p.newErrorAt(at, "%v", err)
	}
	return value, p.checkSize(at, value)
}

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
	case isDigit(next[0]) || next == ".":
		return p.parseNumber()
	case isLetter(next[0]):
		return p.parseName()
	}
	return nil, p.newError("expected a number, found %q", next)
}

func (p *expressionParser) missingTokenError(what string) error {
	if found := p.peekChar(); found != "" {
		return p.newError("expected %q, found %q", what, found)
	}
	return p.newError("expected %q, found the end", what)
}

// parseNumber reads digits with an optional point and decimal exponent.
func (p *expressionParser) parseNumber() (*big.Rat, error) {
	start := p.pos
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
			p.pos = mark // no part of the number
		}
	}
	text := strings.ReplaceAll(p.text[start:p.pos], "_", "")
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		var n int
		if _, err := fmt.Sscan(exponent, &n); err != nil || n > maxExponent || n < -maxExponent {
			return nil, p.newErrorAt(start, "the exponent of %s is beyond %d", text, maxExponent)
		}
	}
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, p.newErrorAt(start, "%q is no number", p.text[start:p.pos])
	}
	return value, p.checkSize(start, value)
}

// parseName reads a constant or a function with its arguments.
func (p *expressionParser) parseName() (*big.Rat, error) {
	start := p.pos
	for p.pos < len(p.text) && (isLetter(p.text[p.pos]) || isDigit(p.text[p.pos])) {
		p.pos++
	}
	name := strings.ToLower(p.text[start:p.pos])
	if value, ok := constants[name]; ok {
		return value, nil
	}
	fn, ok := mathFunctions[name]
	if !ok {
		return nil, p.newErrorAt(start, "unknown name %q; there are pi, e, %s", name, functionNames())
	}
	if p.consumeToken("(") == "" {
		return nil, p.missingTokenError("(")
	}
	var args []*big.Rat
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
	if len(args) < fn.minArgs || len(args) > fn.maxArgs {
		return nil, p.newErrorAt(start, "%s takes %s, not %d", name, fn.describeArity(), len(args))
	}
	value, err := fn.compute(args)
	if err != nil {
		return nil, p.newErrorAt(start, "%s: %v", name, err)
	}
	return value, p.checkSize(start, value)
}

// checkSize refuses a value whose digits would fill the memory.
func (p *expressionParser) checkSize(at int, value *big.Rat) error {
	if value.Num().BitLen() > maxBits || value.Denom().BitLen() > maxBits {
		return p.newErrorAt(at, "the value is too large or too finely divided")
	}
	return nil
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
