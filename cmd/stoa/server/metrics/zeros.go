package metrics

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
)

// addZeros creates the series of an app's counters whose label has a closed set of values, with the value 0. Prometheus
// computes an increase from two values, so that the first event of a series that begins with it would be missed. app is
// the label, "" for the series without it. What was counted before remains.
func (r *Recorder) addZeros(app string) {
	for _, c := range []struct {
		counter intCounter
		key     string
		values  []string
	}{
		{r.requests.errors, "code", errorCodes},
		{r.requests.refused, "rule", []string{surface.BudgetRule}},
		{r.runs.total, "state", runStates},
		{r.work.scheduleTicks, "outcome", []string{"started", "refused", "failed"}},
		{r.work.webhookDeliveries, "outcome", []string{"started", "repeated", "unsigned", "refused", "invalid", "failed"}},
		{r.work.notifications, "outcome", []string{"delivered", "failed", "dead"}},
		{r.Documents.total, "outcome", documentOutcomes},
		{r.Documents.passes, "outcome", passOutcomes},
		{r.Documents.searches, "outcome", searchOutcomes},
	} {
		for _, value := range c.values {
			c.counter.Add(context.Background(), 0, r.labels.sets.optionFor(labelSet{{c.key, value}, 4: {"app", app}}))
		}
	}
}

// errorCodes are the values of the label code.
var errorCodes = []string{
	string(apierror.InvalidArgument), string(apierror.Unauthenticated), string(apierror.PermissionDenied), string(apierror.NotFound), string(apierror.AlreadyExists),
	string(apierror.Aborted), string(apierror.FailedPrecondition), string(apierror.ResourceExhausted), string(apierror.Internal), string(apierror.Unavailable),
}

// runStates are the values of the label state of stoa_runs_total.
var runStates = []string{
	string(agentsvc.Completed), string(agentsvc.Failed), string(agentsvc.Cancelled), string(agentsvc.InputRequired), string(agentsvc.Rejected), string(agentsvc.AuthRequired),
	"retry", "lost", "postponed", "stopped", "unrecorded", "dead",
}
