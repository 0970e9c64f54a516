package function

import (
	"context"
	"fmt"
	"time"
	_ "time/tzdata" // the zones, for hosts that have none

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// currentTimeTool tells the time of day.
type currentTimeTool struct {
	spec agentsvc.ToolSpec
}

func newCurrentTime(opts Options) (tool.Tool, error) {
	return currentTimeTool{opts.toolSpec("Returns the current date and time, with the day of the week.", `{
		"type": "object",
		"properties": {
			"timezone": {"type": "string", "description": "IANA time zone, for example Europe/Berlin. UTC if left out."}
		},
		"additionalProperties": false
	}`)}, nil
}

func (t currentTimeTool) Spec() agentsvc.ToolSpec { return t.spec }
func (t currentTimeTool) IsIdempotent() bool      { return true }

func (t currentTimeTool) Call(_ context.Context, in tool.Input) (string, error) {
	var args struct {
		Timezone string `json:"timezone"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	zone, err := time.LoadLocation(args.Timezone)
	if err != nil || args.Timezone == "Local" {
		return "", fmt.Errorf("%q is no IANA time zone; one is for example Europe/Berlin or UTC", args.Timezone)
	}
	now := time.Now().In(zone)
	return fmt.Sprintf("%s (%s, %s)", now.Format(time.RFC3339), now.Weekday(), zone), nil
}
