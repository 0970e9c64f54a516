package runner

import (
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/store"
	"stoa/agentsvc/tool"
)

// describeFailure returns what callers may read about err, as text and for programs. Only error types whose text is
// known to hold no secret, prompt or upstream body pass through; everything else becomes a general sentence, and the
// full error is only in the log.
func describeFailure(err error) (text string, f agentsvc.Failure) {
	if own, ok := errors.AsType[*agentsvc.Error](err); ok {
		switch own.Code {
		case agentsvc.CodeExhausted, agentsvc.CodeBusy, agentsvc.CodeTooLarge:
			return describeExhaustion(err, own)
		case agentsvc.CodeInvalid:
			f.Code = agentsvc.FailureInvalid
			if own.Field != "" {
				f.Details = map[string]any{"field": own.Field}
			}
			return err.Error(), f
		}
	}
	if upstream, ok := errors.AsType[*llm.Error](err); ok {
		return err.Error(), describeModelFailure(err, upstream)
	}
	if remote, ok := errors.AsType[*agent.RemoteError](err); ok {
		return remote.Error(), agentsvc.Failure{Code: agentsvc.FailureUnavailable, Details: map[string]any{"agent": remote.Agent}}
	}
	if long, ok := errors.AsType[*durationError](err); ok {
		return err.Error(), newLimitFailure("run_duration", long.limit.Seconds())
	}
	if transfers, ok := errors.AsType[*agent.TooManyTransfersError](err); ok {
		return err.Error(), newLimitFailure("transfers", float64(transfers.Max))
	}
	if errors.Is(err, agent.ErrTooManySteps) {
		return err.Error(), newLimitFailure("model_calls", nil)
	}
	if absent, ok := errors.AsType[*tool.UnavailableError](err); ok {
		return err.Error(), agentsvc.Failure{Code: agentsvc.FailureUnavailable, Details: map[string]any{"tools": absent.Source}}
	}
	if _, ok := errors.AsType[*cutOffError](err); ok {
		return err.Error(), agentsvc.Failure{Code: agentsvc.FailureAborted}
	}
	if _, ok := errors.AsType[*store.UnavailableError](err); ok {
		return "The conversation can be neither read nor kept at the moment.", agentsvc.Failure{Code: agentsvc.FailureUnavailable}
	}
	return "The agent failed with an internal error.", agentsvc.Failure{Code: agentsvc.FailureInternal}
}

// describeExhaustion is describeFailure for a budget, a limit, a quota or memory that is used up; own is the error in
// the chain of err that says so.
func describeExhaustion(err error, own *agentsvc.Error) (text string, f agentsvc.Failure) {
	switch detail := own.Detail.(type) {
	case *agentsvc.ExhaustedBudget:
		return err.Error(), agentsvc.Failure{Code: agentsvc.FailureExhausted, Details: detail.Details()}
	case agentsvc.StorageUse:
		return "The task's result could not be stored: " + own.Error(), newLimitFailure("stored_bytes", float64(detail.MaxBytes))
	}
	if own.Code == agentsvc.CodeExhausted {
		return err.Error(), agentsvc.Failure{Code: agentsvc.FailureExhausted}
	}
	return err.Error(), newLimitFailure("answer_memory", nil)
}

// newLimitFailure returns the failure of a task that reached a limit of the server or of its agent. The members have
// the names of refused calls; limit is a float64, nil = it is not known here.
func newLimitFailure(rule string, limit any) agentsvc.Failure {
	details := map[string]any{"rule": rule}
	if limit != nil {
		details["limit"] = limit
	}
	return agentsvc.Failure{Code: agentsvc.FailureExhausted, Details: details}
}

// describeModelFailure returns the failure of a task whose model failed with upstream.
func describeModelFailure(err error, upstream *llm.Error) agentsvc.Failure {
	f := agentsvc.Failure{Code: agentsvc.FailurePrecondition, Details: map[string]any{"provider": upstream.Provider}}
	if upstream.Retryable {
		f.Code = agentsvc.FailureUnavailable
	}
	if upstream.Status != 0 {
		f.Details["status"] = float64(upstream.Status)
	}
	if of, ok := errors.AsType[*llm.ModelError](err); ok {
		f.Details["model"] = of.Model
	}
	return f
}
