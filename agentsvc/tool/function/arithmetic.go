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

// errUndefined reports that a function has no real value for its arguments.
var errUndefined = errors.New("has no real value there")

// constants are the named constants of expressions, with the precision of a float64.
var constants = map[string]*big.Rat{
	"pi": new(big.Rat).SetFloat64(math.Pi),
	"e":  new(big.Rat).SetFloat64(math.E),
}

// unlimitedArgs is the upper bound of arguments of functions such as min.
const unlimitedArgs = 100

// mathFunction is a function of expressions, with minArgs to maxArgs arguments. compute does not change its arguments.
type mathFunction struct {
	minArgs, maxArgs int
	compute          func(args []*big.Rat) (*big.Rat, error)
}

// describeArity returns the number of arguments in words.
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

// mathFunctions are the functions of expressions, by name.
var mathFunctions = map[string]mathFunction{
	// Exact functions.
	"abs":   exactFunction(func(x *big.Rat) *big.Rat { return new(big.Rat).Abs(x) }),
	"floor": exactFunction(floorRat),
	"ceil":  exactFunction(func(x *big.Rat) *big.Rat { return new(big.Rat).Neg(floorRat(new(big.Rat).Neg(x))) }),
	"round": {1, 2, roundRat},
	"min":   {1, unlimitedArgs, func(args []*big.Rat) (*big.Rat, error) { return slices.MinFunc(args, (*big.Rat).Cmp), nil }},
	"max":   {1, unlimitedArgs, func(args []*big.Rat) (*big.Rat, error) { return slices.MaxFunc(args, (*big.Rat).Cmp), nil }},
	// Functions computed with float64.
	"sqrt": floatFunction(math.Sqrt), "exp": floatFunction(math.Exp), "ln": floatFunction(math.Log), "log": floatFunction(math.Log10), "log2": floatFunction(math.Log2),
	"sin": floatFunction(math.Sin), "cos": floatFunction(math.Cos), "tan": floatFunction(math.Tan),
	"asin": floatFunction(math.Asin), "acos": floatFunction(math.Acos), "atan": floatFunction(math.Atan),
}

// functionNames returns the names of the functions, sorted.
func functionNames() string {
	return strings.Join(slices.Sorted(maps.Keys(mathFunctions)), ", ")
}

// exactFunction returns a function of one argument that is computed exactly.
func exactFunction(f func(*big.Rat) *big.Rat) mathFunction {
	return mathFunction{1, 1, func(args []*big.Rat) (*big.Rat, error) { return f(args[0]), nil }}
}

// floatFunction returns a function of one argument that is computed with float64.
func floatFunction(f func(float64) float64) mathFunction {
	return mathFunction{1, 1, func(args []*big.Rat) (*big.Rat, error) {
		// A value beyond the range of float64 becomes an infinity, for which most functions are undefined.
		x, _ := args[0].Float64()
		return toRational(f(x))
	}}
}

// toRational returns x exactly, or errUndefined for an infinity or NaN.
func toRational(x float64) (*big.Rat, error) {
	r := new(big.Rat).SetFloat64(x)
	if r == nil {
		return nil, errUndefined
	}
	return r, nil
}

// floorRat returns the greatest whole number that is not greater than x.
func floorRat(x *big.Rat) *big.Rat {
	// Div rounds towards minus infinity for a positive divisor, which a denominator is.
	return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom()))
}

// roundRat rounds half away from zero, to the number of decimals in the second argument, if any.
func roundRat(args []*big.Rat) (*big.Rat, error) {
	scale := new(big.Rat).SetInt64(1)
	if len(args) == 2 {
		// The bound of decimals bounds the size of scale.
		n := args[1]
		if !n.IsInt() || n.Cmp(big.NewRat(100, 1)) > 0 || n.Sign() < 0 {
			return nil, errors.New("the number of decimals must be a whole number from 0 to 100")
		}
		// The argument is scaled, rounded to a whole number and scaled back.
		scale.SetInt(new(big.Int).Exp(big.NewInt(10), n.Num(), nil))
	}
	x := new(big.Rat).Mul(args[0], scale)
	half := floorRat(new(big.Rat).Add(new(big.Rat).Abs(x), big.NewRat(1, 2)))
	if x.Sign() < 0 {
		half.Neg(half)
	}
	return half.Quo(half, scale), nil
}

// remainderRat returns the remainder of x divided by y, with the sign of x as in Go.
func remainderRat(x, y *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(x, y)
	integerPart := new(big.Rat).SetInt(new(big.Int).Quo(q.Num(), q.Denom()))
	return new(big.Rat).Sub(x, integerPart.Mul(integerPart, y))
}

// powRat returns base to the power of exponent: exactly for whole exponents, with float64 for others. It bounds the
// size of the result before it computes, because 2 to the power of 10^9 would fill the memory. 0 to a negative power is
// a division by zero.
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
	// The result has about bits times n bits.
	bits := int64(max(base.Num().BitLen(), base.Denom().BitLen()))
	switch small := bits <= 1; {
	case small && n.Sign() != 0:
		n.SetInt64(2 + int64(n.Bit(0))) // for 0, 1 and -1 only the parity of the exponent matters
	case !small && (!n.IsInt64() || n.Int64() > maxBits || bits*n.Int64() > 2*maxBits):
		return nil, errors.New("the value is too large or too finely divided")
	}
	out := new(big.Rat).SetFrac(new(big.Int).Exp(base.Num(), n, nil), new(big.Int).Exp(base.Denom(), n, nil))
	if exponent.Sign() < 0 {
		out.Inv(out)
	}
	return out, nil
}
