package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"stoa/tenancy/db"
)

// Timing of reports. A period of counts ends with the first report of another minute of UTC, so that the counts of a minute
// are one row of each process; while the database does not answer it goes on, so that nothing is lost.
const (
	reportInterval = 10 * time.Second
	periodTime     = time.Minute
	stopTimeout    = 2 * time.Second
)

// Options are what a [Reporter] needs. Log and all of DB, Recorder and Process are required.
type Options struct {
	DB       *db.DB
	Recorder *Recorder
	// Process describes this process; its host and the times are not read.
	Process Process
	// AwaitsRestart returns [Process].AwaitsRestart; nil = nothing ever awaits one.
	AwaitsRestart func() []string
	// IsStopping reports whether the process drains; nil = it never does.
	IsStopping func() bool
	Log        *slog.Logger
}

// Reporter writes what this process is, and what it has counted, to the database. Its fields are used by the goroutine of
// Run only, except wake.
type Reporter struct {
	options Options
	table   processTable
	// wake has a report written at once.
	wake chan struct{}
	// number is that of the current period, from 1.
	number    int64
	startedAt time.Time
	// ended is the period before the current one until it was written once more: calls may have been added to it while
	// it was replaced.
	ended *period
	// written is the current period as it was written last.
	written string
}

// NewReporter returns a reporter that has written nothing.
func NewReporter(o Options) *Reporter {
	o.Process.Host = hostName()
	return &Reporter{options: o, table: processTable{o.DB}, wake: make(chan struct{}, 1), number: 1, startedAt: time.Now()}
}

// ProcessID identifies this process in its leases and in the list of processes.
func (r *Reporter) ProcessID() string { return r.options.Process.ID }

// Wake has a report written soon, when the state of the process has changed. It does not block.
func (r *Reporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run writes reports until ctx ends, then the last one, and deletes the row of the process. Failures are logged once at
// their beginning and end.
func (r *Reporter) Run(ctx context.Context) error {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	healthy := true
	for {
		err := r.report(ctx, time.Now())
		if ctx.Err() != nil {
			return r.stop(ctx)
		}
		if (err == nil) != healthy {
			if healthy = err == nil; healthy {
				r.options.Log.InfoContext(ctx, "the list of processes shows this one as it is again")
			} else {
				r.options.Log.WarnContext(ctx, "the list of processes does not show this one as it is at present", "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-r.wake:
		case <-ctx.Done():
			return r.stop(ctx)
		}
	}
}

// stop writes what was counted last and deletes the row of the process. A failure is not worth a longer stop: the row of
// the process is deleted by the others later.
func (r *Reporter) stop(ctx context.Context) error {
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if r.report(left, time.Now()) == nil {
		_ = r.table.remove(left, r.options.Process.ID)
	}
	return ctx.Err()
}

// report writes the row of the process and the counts that have changed. After an error the next report writes them.
func (r *Reporter) report(ctx context.Context, now time.Time) error {
	p := r.options.Process
	if f := r.options.AwaitsRestart; f != nil {
		p.AwaitsRestart = f()
	}
	var periods []storedPeriod
	if r.ended != nil {
		text, err := encodeTraffic(r.ended.read())
		if err != nil {
			return err
		}
		periods = append(periods, storedPeriod{r.number - 1, text})
	}
	text, err := encodeTraffic(r.options.Recorder.current.Load().read())
	if err != nil {
		return err
	}
	if text != r.written {
		periods = append(periods, storedPeriod{r.number, text})
	}
	over := !now.Truncate(periodTime).Equal(r.startedAt.Truncate(periodTime))
	if err := r.table.write(ctx, p, r.options.IsStopping != nil && r.options.IsStopping(), periods, over); err != nil {
		return err
	}
	r.ended, r.written = nil, text
	if !over {
		return nil
	}
	r.startedAt = now
	if text == "" {
		return nil // nothing was counted: the period goes on
	}
	r.ended, r.written = r.options.Recorder.next(), ""
	r.number++
	return nil
}

// encodeTraffic returns t as it is stored, "" if nothing was counted.
func encodeTraffic(t Traffic) (string, error) {
	if len(t.Apps) == 0 && t.Rest.isEmpty() {
		return "", nil
	}
	text, err := json.Marshal(t)
	return string(text), err
}
