package function

import (
	"context"
	"fmt"
	"time"
	_ "time/tzdata" // the zone database, for hosts without one

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// currentTimeTool is the built-in current_time. A model does not know the present time; the tool also returns the day
// of the week, so that the model need not compute it.
type currentTimeTool struct {
	spec agentsvc.ToolSpec
}

// newCurrentTime builds current_time.
func newCurrentTime(opts Options) (tool.Tool, error) {
	return currentTimeTool{opts.toolSpec("Returns the current date and time, with the day of the week.", `{
		"type": "object",
		"properties": {
			"timezone": {"type": "string", "description": "IANA time zone, for example Europe/Berlin. UTC if left out."}
		},
		"additionalProperties": false
	}`)}, nil
}

// Spec implements [tool.Tool].
func (t currentTimeTool) Spec() agentsvc.ToolSpec { return t.spec }

// IsIdempotent implements [tool.Tool]: the tool has no effect.
func (t currentTimeTool) IsIdempotent() bool { return true }

// Call returns the present time in a zone. "Local" is refused: it would reveal the host's zone.
func (t currentTimeTool) Call(_ context.Context, in tool.Call) (string, error) {
	var args struct {
		Timezone string `json:"timezone"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	// An empty name is UTC.
	zone, err := time.LoadLocation(args.Timezone)
	if err != nil || args.Timezone == "Local" {
		return "", fmt.Errorf("%q is no IANA time zone; one is for example Europe/Berlin or UTC", args.Timezone)
	}
	now := time.Now().In(zone)
	return fmt.Sprintf("%s (%s, %s)", now.Format(time.RFC3339), now.Weekday(), zone), nil
}
