package function

import (
	"context"
	"math/big"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// calculatorTool works out arithmetic. Sums, products, quotients and whole powers are exact.
type calculatorTool struct {
	spec agentsvc.ToolSpec
}

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

func (c calculatorTool) Spec() agentsvc.ToolSpec { return c.spec }
func (c calculatorTool) IsIdempotent() bool      { return true }

func (c calculatorTool) Call(ctx context.Context, in tool.Input) (string, error) {
	var args struct {
		Expression string `json:"expression"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	value, err := evaluateExpression(args.Expression)
	if err != nil {
		return "", err
	}
	return formatRational(value), nil
}

// formatRational writes whole numbers in full and others with 15 significant digits.
func formatRational(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return new(big.Float).SetPrec(256).SetRat(r).Text('g', 15)
}
