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

// evaluate returns the value of an expression:
//
//	sum     = product { ("+" | "-") product }
//	product = sign { ("*" | "/" | "%") sign }
//	sign    = ("+" | "-") sign | power
//	power   = operand [ ("^" | "**") sign ]
//	operand = number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
//
// An error says at which character of it something is wrong, counted from 1.
func evaluate(expression string) (*big.Rat, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d characters", maxExpression)
	}
	p := &parser{text: expression}
	value, err := p.sum()
	if err != nil {
		return nil, err
	}
	if c := p.peek(); c != "" {
		return nil, p.fail("expected an operator or the end, found %q", c)
	}
	return value, nil
}

// parser reads and evaluates at once.
type parser struct {
	text  string
	at    int // byte
	depth int
}

func (p *parser) fail(format string, args ...any) error {
	return p.failAt(p.at, format, args...)
}

func (p *parser) failAt(at int, format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", utf8.RuneCountInString(p.text[:at])+1, fmt.Sprintf(format, args...))
}

// peek skips white space and returns the next character, "" at the end.
func (p *parser) peek() string {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	_, n := utf8.DecodeRuneInString(p.text[p.at:])
	return p.text[p.at : p.at+n]
}

// take skips the first of tokens that comes next and returns it, "" if none does.
func (p *parser) take(tokens ...string) string {
	p.peek()
	for _, t := range tokens {
		if strings.HasPrefix(p.text[p.at:], t) {
			p.at += len(t)
			return t
		}
	}
	return ""
}

// down enters a level of nesting; the function it returns leaves it.
func (p *parser) down() (up func(), err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail("the expression is nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }, nil
}

func (p *parser) sum() (*big.Rat, error) {
	up, err := p.down()
	if err != nil {
		return nil, err
	}
	defer up()
	left, err := p.product()
	for err == nil {
		at := p.at
		op := p.take("+", "-", "−")
		if op == "" {
			return left, nil
		}
		var right *big.Rat
		if right, err = p.product(); err != nil {
			break
		}
		if op == "+" {
			left = new(big.Rat).Add(left, right)
		} else {
			left = new(big.Rat).Sub(left, right)
		}
		err = p.bounded(at, left)
	}
	return nil, err
}

func (p *parser) product() (*big.Rat, error) {
	left, err := p.sign()
	for err == nil {
		if next := p.peek(); strings.HasPrefix(p.text[p.at:], "**") || next == "" {
			return left, nil
		}
		at := p.at
		op := p.take("*", "×", "/", "÷", "%")
		if op == "" {
			return left, nil
		}
		var right *big.Rat
		if right, err = p.sign(); err != nil {
			break
		}
		left, err = p.apply(at, op, left, right)
	}
	return nil, err
}

func (p *parser) apply(at int, op string, left, right *big.Rat) (*big.Rat, error) {
	if op != "*" && op != "×" && right.Sign() == 0 {
		return nil, p.failAt(at, "division by zero")
	}
	var out *big.Rat
	switch op {
	case "*", "×":
		out = new(big.Rat).Mul(left, right)
	case "%":
		out = remainder(left, right)
	default:
		out = new(big.Rat).Quo(left, right)
	}
	return out, p.bounded(at, out)
}

func (p *parser) sign() (*big.Rat, error) {
	op := p.take("+", "-", "−")
	if op == "" {
		return p.power()
	}
	up, err := p.down()
	if err != nil {
		return nil, err
	}
	defer up()
	value, err := p.sign()
	if err == nil && op != "+" {
		value = new(big.Rat).Neg(value)
	}
	return value, err
}

func (p *parser) power() (*big.Rat, error) {
	base, err := p.operand()
	if err != nil {
		return nil, err
	}
	p.peek()
	at := p.at
	if p.take("^", "**") == "" {
		return base, nil
	}
	up, err := p.down()
	if err != nil {
		return nil, err
	}
	defer up()
	exponent, err := p.sign()
	if err != nil {
		return nil, err
	}
	value, err := power(base, exponent)
	if err != nil {
		return nil, p.failAt(at, "%v", err)
	}
	return value, p.bounded(at, value)
}

func (p *parser) operand() (*big.Rat, error) {
	next := p.peek()
	switch {
	case next == "":
		return nil, p.fail("expected a number, found the end")
	case next == "(":
		p.at++
		value, err := p.sum()
		if err != nil {
			return nil, err
		}
		if p.take(")") == "" {
			return nil, p.missing(")")
		}
		return value, nil
	case isDigit(next[0]) || next == ".":
		return p.number()
	case isLetter(next[0]):
		return p.word()
	}
	return nil, p.fail("expected a number, found %q", next)
}

func (p *parser) missing(what string) error {
	if found := p.peek(); found != "" {
		return p.fail("expected %q, found %q", what, found)
	}
	return p.fail("expected %q, found the end", what)
}

// number reads digits with an optional point and decimal exponent.
func (p *parser) number() (*big.Rat, error) {
	start := p.at
	digits := func() {
		for p.at < len(p.text) && (isDigit(p.text[p.at]) || p.text[p.at] == '_') {
			p.at++
		}
	}
	digits()
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		digits()
	}
	if p.at < len(p.text) && (p.text[p.at] == 'e' || p.text[p.at] == 'E') {
		mark := p.at
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		first := p.at
		digits()
		if p.at == first {
			p.at = mark // no part of the number
		}
	}
	text := strings.ReplaceAll(p.text[start:p.at], "_", "")
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		var n int
		if _, err := fmt.Sscan(exponent, &n); err != nil || n > maxExponent || n < -maxExponent {
			return nil, p.failAt(start, "the exponent of %s is beyond %d", text, maxExponent)
		}
	}
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, p.failAt(start, "%q is no number", p.text[start:p.at])
	}
	return value, p.bounded(start, value)
}

// word reads a constant or a function with its arguments.
func (p *parser) word() (*big.Rat, error) {
	start := p.at
	for p.at < len(p.text) && (isLetter(p.text[p.at]) || isDigit(p.text[p.at])) {
		p.at++
	}
	name := strings.ToLower(p.text[start:p.at])
	if value, ok := constants[name]; ok {
		return value, nil
	}
	fn, ok := functions[name]
	if !ok {
		return nil, p.failAt(start, "unknown name %q; there are pi, e, %s", name, functionNames())
	}
	if p.take("(") == "" {
		return nil, p.missing("(")
	}
	var args []*big.Rat
	for {
		arg, err := p.sum()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		if p.take(",") != "" {
			continue
		}
		if p.take(")") == "" {
			return nil, p.missing(")")
		}
		break
	}
	if len(args) < fn.min || len(args) > fn.max {
		return nil, p.failAt(start, "%s takes %s, not %d", name, fn.takes(), len(args))
	}
	value, err := fn.of(args)
	if err != nil {
		return nil, p.failAt(start, "%s: %v", name, err)
	}
	return value, p.bounded(start, value)
}

// bounded refuses a value whose digits would fill the memory.
func (p *parser) bounded(at int, value *big.Rat) error {
	if value.Num().BitLen() > maxBits || value.Denom().BitLen() > maxBits {
		return p.failAt(at, "the value is too large or too finely divided")
	}
	return nil
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
