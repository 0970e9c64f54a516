package function

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
)

// errUndefined says that a function has no real value there.
var errUndefined = errors.New("has no real value there")

var constants = map[string]*big.Rat{
	"pi": new(big.Rat).SetFloat64(math.Pi),
	"e":  new(big.Rat).SetFloat64(math.E),
}

// many is the most arguments a function takes.
const many = 100

// function is one that an expression can call, with min to max arguments.
type function struct {
	min, max int
	of       func(args []*big.Rat) (*big.Rat, error)
}

func (f function) takes() string {
	switch {
	case f.max == many:
		return fmt.Sprintf("%d or more arguments", f.min)
	case f.min != f.max:
		return fmt.Sprintf("%d or %d arguments", f.min, f.max)
	case f.min == 1:
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", f.min)
}

var functions = map[string]function{
	"abs":   exact(func(x *big.Rat) *big.Rat { return new(big.Rat).Abs(x) }),
	"floor": exact(floor),
	"ceil":  exact(func(x *big.Rat) *big.Rat { return new(big.Rat).Neg(floor(new(big.Rat).Neg(x))) }),
	"round": {1, 2, round},
	"min":   {1, many, func(args []*big.Rat) (*big.Rat, error) { return slices.MinFunc(args, (*big.Rat).Cmp), nil }},
	"max":   {1, many, func(args []*big.Rat) (*big.Rat, error) { return slices.MaxFunc(args, (*big.Rat).Cmp), nil }},
	"sqrt":  approximate(math.Sqrt), "exp": approximate(math.Exp), "ln": approximate(math.Log), "log": approximate(math.Log10), "log2": approximate(math.Log2),
	"sin": approximate(math.Sin), "cos": approximate(math.Cos), "tan": approximate(math.Tan),
	"asin": approximate(math.Asin), "acos": approximate(math.Acos), "atan": approximate(math.Atan),
}

func functionNames() string {
	return strings.Join(slices.Sorted(maps.Keys(functions)), ", ")
}

func exact(f func(*big.Rat) *big.Rat) function {
	return function{1, 1, func(args []*big.Rat) (*big.Rat, error) { return f(args[0]), nil }}
}

// approximate is a function that is worked out in 64-bit floating point.
func approximate(f func(float64) float64) function {
	return function{1, 1, func(args []*big.Rat) (*big.Rat, error) {
		x, _ := args[0].Float64()
		return rational(f(x))
	}}
}

func rational(x float64) (*big.Rat, error) {
	r := new(big.Rat).SetFloat64(x)
	if r == nil {
		return nil, errUndefined
	}
	return r, nil
}

func floor(x *big.Rat) *big.Rat {
	// Div rounds towards minus infinity where the divisor is positive, as a denominator is.
	return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom()))
}

// round rounds half away from zero, to a number of decimals if there is a second argument.
func round(args []*big.Rat) (*big.Rat, error) {
	scale := new(big.Rat).SetInt64(1)
	if len(args) == 2 {
		n := args[1]
		if !n.IsInt() || n.Cmp(big.NewRat(100, 1)) > 0 || n.Sign() < 0 {
			return nil, errors.New("the number of decimals must be a whole number from 0 to 100")
		}
		scale.SetInt(new(big.Int).Exp(big.NewInt(10), n.Num(), nil))
	}
	x := new(big.Rat).Mul(args[0], scale)
	half := floor(new(big.Rat).Add(new(big.Rat).Abs(x), big.NewRat(1, 2)))
	if x.Sign() < 0 {
		half.Neg(half)
	}
	return half.Quo(half, scale), nil
}

// remainder has the sign of x, as in Go.
func remainder(x, y *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(x, y)
	whole := new(big.Rat).SetInt(new(big.Int).Quo(q.Num(), q.Denom()))
	return new(big.Rat).Sub(x, whole.Mul(whole, y))
}

// power is exact for whole exponents.
func power(base, exponent *big.Rat) (*big.Rat, error) {
	if !exponent.IsInt() {
		x, _ := base.Float64()
		y, _ := exponent.Float64()
		return rational(math.Pow(x, y))
	}
	if base.Sign() == 0 && exponent.Sign() < 0 {
		return nil, errors.New("division by zero")
	}
	n := new(big.Int).Abs(exponent.Num())
	bits := int64(max(base.Num().BitLen(), base.Denom().BitLen()))
	switch small := bits <= 1; {
	case small && n.Sign() != 0:
		n.SetInt64(2 + int64(n.Bit(0))) // of 0, 1 and -1 only whether the exponent is odd matters
	case !small && (!n.IsInt64() || n.Int64() > maxBits || bits*n.Int64() > 2*maxBits):
		return nil, errors.New("the value is too large or too finely divided")
	}
	out := new(big.Rat).SetFrac(new(big.Int).Exp(base.Num(), n, nil), new(big.Int).Exp(base.Denom(), n, nil))
	if exponent.Sign() < 0 {
		out.Inv(out)
	}
	return out, nil
}
