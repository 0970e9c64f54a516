package app

import (
	"stoa/agentsvc/notify"
)

// Notify is what a process that has addresses outside told of tasks wants to know.
type Notify struct {
	Made  func()                    // called when somebody is about to be told of another task
	Tried func(app, outcome string) // told of each attempt; may be nil
}

// Telling is how the addresses are told that an app's callers choose.
type Telling struct {
	Secret []byte // signs what they are told; nil = nothing does
	Inside bool   // they may be private ones
}

// Desk sends what addresses outside are told of the app's tasks; nil where none are.
func (a *App) Desk() *notify.Desk { return a.desk }

// desk makes it.
func (b *builder) desk(h House) *notify.Desk {
	if h.Notify == nil || h.Keys == nil {
		return nil
	}
	o := notify.Options{Client: h.Outside, Inside: b.tenant.Telling.Inside, Secret: b.tenant.Telling.Secret, Made: h.Notify.Made}
	if o.Inside {
		o.Client = h.Inside
	}
	if tried, app := h.Notify.Tried, b.tenant.Name; tried != nil {
		o.Tried = func(outcome string) { tried(app, outcome) }
	}
	return notify.NewDesk(b.tenant.ID, h.Keys, o)
}
