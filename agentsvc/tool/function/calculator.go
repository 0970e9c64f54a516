package function

import (
	"context"
	"math/big"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// calculatorTool is the built-in calculator. Sums, products, quotients and powers with whole exponents are exact
// rationals; functions such as sqrt have the precision of a float64. Time and memory are bounded by the constants of
// expression.go.
type calculatorTool struct {
	spec agentsvc.ToolSpec
}

// newCalculator builds calculator.
func newCalculator(opts Options) (tool.Tool, error) {
	return calculatorTool{opts.toolSpec("Evaluates an arithmetic expression and returns its value. Knows + - * / % ^ and parentheses, "+
		"the constants pi and e, and the functions "+functionNames()+". Angles are in radians, % is the remainder.", `{
		"type": "object",
		"properties": {
			"expression": {"type": "string", "description": "for example (2 + 3) * sqrt(16) / 7"}
		},
		"required": ["expression"],
		"additionalProperties": false
	}`)}, nil
}

// Spec implements [tool.Tool].
func (c calculatorTool) Spec() agentsvc.ToolSpec { return c.spec }

// IsIdempotent implements [tool.Tool]: the calculator has no effect.
func (c calculatorTool) IsIdempotent() bool { return true }

// Call evaluates an expression.
func (c calculatorTool) Call(ctx context.Context, in tool.Call) (string, error) {
	var args struct {
		Expression string `json:"expression"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	// An error names the position, so that the model can correct the expression.
	value, err := evaluateExpression(args.Expression)
	if err != nil {
		return "", err
	}
	return formatRational(value), nil
}

// formatRational returns a whole number in full and any other with 15 significant digits.
func formatRational(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return new(big.Float).SetPrec(256).SetRat(r).Text('g', 15)
}
