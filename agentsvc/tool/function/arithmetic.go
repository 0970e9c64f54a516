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

// unlimitedArgs is the most arguments a function takes.
const unlimitedArgs = 100

// mathFunction is one that an expression can call, with min to max arguments.
type mathFunction struct {
	minArgs, maxArgs int
	compute          func(args []*big.Rat) (*big.Rat, error)
}

func (f mathFunction) describeArity() string {
	switch {
	case f.maxArgs == unlimitedArgs:
		return fmt.Sprintf("%d or more arguments", f.minArgs)
	case f.minArgs != f.maxArgs:
		return fmt.Sprintf("%d or %d arguments", f.minArgs, f.maxArgs)
	case f.minArgs == 1:
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", f.minArgs)
}

var mathFunctions = map[string]mathFunction{
	"abs":   exactFunction(func(x *big.Rat) *big.Rat { return new(big.Rat).Abs(x) }),
	"floor": exactFunction(floorRat),
	"ceil":  exactFunction(func(x *big.Rat) *big.Rat { return new(big.Rat).Neg(floorRat(new(big.Rat).Neg(x))) }),
	"round": {1, 2, roundRat},
	"min":   {1, unlimitedArgs, func(args []*big.Rat) (*big.Rat, error) { return slices.MinFunc(args, (*big.Rat).Cmp), nil }},
	"max":   {1, unlimitedArgs, func(args []*big.Rat) (*big.Rat, error) { return slices.MaxFunc(args, (*big.Rat).Cmp), nil }},
	"sqrt":  floatFunction(math.Sqrt), "exp": floatFunction(math.Exp), "ln": floatFunction(math.Log), "log": floatFunction(math.Log10), "log2": floatFunction(math.Log2),
	"sin": floatFunction(math.Sin), "cos": floatFunction(math.Cos), "tan": floatFunction(math.Tan),
	"asin": floatFunction(math.Asin), "acos": floatFunction(math.Acos), "atan": floatFunction(math.Atan),
}

func functionNames() string {
	return strings.Join(slices.Sorted(maps.Keys(mathFunctions)), ", ")
}

func exactFunction(f func(*big.Rat) *big.Rat) mathFunction {
	return mathFunction{1, 1, func(args []*big.Rat) (*big.Rat, error) { return f(args[0]), nil }}
}

// floatFunction is a function that is worked out in 64-bit floating point.
func floatFunction(f func(float64) float64) mathFunction {
	return mathFunction{1, 1, func(args []*big.Rat) (*big.Rat, error) {
		x, _ := args[0].Float64()
		return toRational(f(x))
	}}
}

func toRational(x float64) (*big.Rat, error) {
	r := new(big.Rat).SetFloat64(x)
	if r == nil {
		return nil, errUndefined
	}
	return r, nil
}

func floorRat(x *big.Rat) *big.Rat {
	// Div rounds towards minus infinity where the divisor is positive, as a denominator is.
	return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom()))
}

// roundRat rounds half away from zero, to a number of decimals if there is a second argument.
func roundRat(args []*big.Rat) (*big.Rat, error) {
	scale := new(big.Rat).SetInt64(1)
	if len(args) == 2 {
		n := args[1]
		if !n.IsInt() || n.Cmp(big.NewRat(100, 1)) > 0 || n.Sign() < 0 {
			return nil, errors.New("the number of decimals must be a whole number from 0 to 100")
		}
		scale.SetInt(new(big.Int).Exp(big.NewInt(10), n.Num(), nil))
	}
	x := new(big.Rat).Mul(args[0], scale)
	half := floorRat(new(big.Rat).Add(new(big.Rat).Abs(x), big.NewRat(1, 2)))
	if x.Sign() < 0 {
		half.Neg(half)
	}
	return half.Quo(half, scale), nil
}

// remainderRat has the sign of x, as in Go.
func remainderRat(x, y *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(x, y)
	integerPart := new(big.Rat).SetInt(new(big.Int).Quo(q.Num(), q.Denom()))
	return new(big.Rat).Sub(x, integerPart.Mul(integerPart, y))
}

// powRat is exact for whole exponents.
func powRat(base, exponent *big.Rat) (*big.Rat, error) {
	if !exponent.IsInt() {
		x, _ := base.Float64()
		y, _ := exponent.Float64()
		return toRational(math.Pow(x, y))
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
