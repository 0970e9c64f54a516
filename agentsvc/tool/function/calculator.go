package function

import (
	"context"
	"math/big"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// calculator works out arithmetic. Sums, products, quotients and whole powers are exact.
type calculator struct {
	spec agentsvc.ToolSpec
}

func newCalculator(opts Options) (tool.Tool, error) {
	return calculator{opts.spec("Evaluates an arithmetic expression and returns its value. Knows + - * / % ^ and parentheses, "+
		"the constants pi and e, and the functions "+functionNames()+". Angles are in radians, % is the remainder.", `{
		"type": "object",
		"properties": {
			"expression": {"type": "string", "description": "for example (2 + 3) * sqrt(16) / 7"}
		},
		"required": ["expression"],
		"additionalProperties": false
	}`)}, nil
}

func (c calculator) Spec() agentsvc.ToolSpec { return c.spec }
func (c calculator) Idempotent() bool        { return true }

func (c calculator) Call(ctx context.Context, in tool.Input) (string, error) {
	var args struct {
		Expression string `json:"expression"`
	}
	if err := decode(in, &args); err != nil {
		return "", err
	}
	value, err := evaluate(args.Expression)
	if err != nil {
		return "", err
	}
	return format(value), nil
}

// format writes whole numbers in full and others with 15 significant digits.
func format(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return new(big.Float).SetPrec(256).SetRat(r).Text('g', 15)
}
