package config

import (
	"time"

	"stoa/agentsvc/config/document"
)

// Storage says where tasks, sessions, memory and checkpoints are kept.
type Storage struct {
	// Tasks says where tasks are kept.
	Tasks Backend `yaml:"tasks"`
	// Sessions says where conversations are kept.
	Sessions Backend `yaml:"sessions"`
	// Memory lets the llm agents recall earlier conversations with the same user. Without it, they
	// recall nothing.
	Memory *Memory `yaml:"memory"`
	// Retention says how long what is finished is kept.
	Retention Retention `yaml:"retention"`
	// Checkpoint says which steps of a running task it can be restored to, and what happens to it after a crash.
	Checkpoint Checkpoint `yaml:"checkpoint"`
}

// Backend is a place to keep tasks or sessions.
type Backend struct {
	// Backend is the kind of place: a SQL database, or memory that is lost on restart.
	Backend string `yaml:"backend" jsonschema:"enum=sql,enum=inmemory,default=sql"`
	// Database is the database to use, of the app's own: for sessions only. Without it, it is the server's own.
	Database string `yaml:"database" ref:"databases" only:"backend=sql"`
}

// Retention says how long what is finished is kept. What is left out is kept.
type Retention struct {
	// Tasks is how long a task is kept after its end, with all that belongs to it.
	Tasks time.Duration `yaml:"tasks"`
	// Events is how long the log of a task is kept after its end. Its last status stays as long as
	// the task.
	Events time.Duration `yaml:"events"`
	// Sessions is how long a conversation is kept after its last turn.
	Sessions time.Duration `yaml:"sessions"`
}

// checkRules checks that retentions are at least a minute and that events do not outlive their task.
func (r *Retention) checkRules(c *validation, s document.Location) {
	for name, d := range map[string]time.Duration{"tasks": r.Tasks, "events": r.Events, "sessions": r.Sessions} {
		if c.doc.HasValue(s.Value, name) && d < time.Minute {
			c.addProblem(s.Child(name), "must be at least 1m")
		}
	}
	if r.Tasks > 0 && r.Events >= r.Tasks {
		c.addProblem(s.Child("events"), "must be shorter than tasks: the events of a task go with it")
	}
}

// Memory lets agents recall earlier conversations with the same user.
type Memory struct {
	// Backend is how memories are found: by their words or, with an embedder, by their meaning.
	Backend string `yaml:"backend" jsonschema:"enum=keyword,enum=vector,default=keyword"`
	// Embedder makes the vectors of memories.
	Embedder string `yaml:"embedder" ref:"embedders" only:"backend=vector"`
	// VectorProvider says where the vectors are looked up. Without it, in memory; the database keeps them all.
	VectorProvider *VectorProvider `yaml:"vector_provider" only:"backend=vector"`
}

// VectorProvider keeps the vectors of memories.
type VectorProvider struct {
	// Type is the kind of store.
	Type string `yaml:"type" jsonschema:"enum=chromem,default=chromem"`
	// Chromem configures it.
	Chromem Chromem `yaml:"chromem"`
}

// Chromem configures a vector store that lives inside this process.
type Chromem struct {
	// PersistPath is the folder that the vectors are kept in as well, so that they need not be read from the database
	// after a restart. It is allowed in the operator's file only.
	PersistPath string `yaml:"persist_path" grant:"filesystem"`
}

// checkRules refuses a folder of a tenant. When an app is deleted, nothing of it may remain on any machine that ran
// it, and no process knows the folders of the others.
func (chr *Chromem) checkRules(c *validation, s document.Location) {
	if c.Tenant && chr.PersistPath != "" && c.isGranted("filesystem") {
		c.addProblem(s.Child("persist_path"), "stands in the operator's file only: the vectors of an app live in the database and in memory")
	}
}

// Checkpoint says which steps of a running task are points that it can be restored to. Its journal, which a run goes
// on from after a crash, is always kept.
type Checkpoint struct {
	// Enabled turns restore points on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// Strategy is what makes a restore point: events, every so many iterations, or both.
	Strategy string `yaml:"strategy" jsonschema:"enum=event,enum=interval,enum=hybrid,default=event"`
	// Interval is after how many model calls an iteration makes a restore point; 0 is never.
	Interval int `yaml:"interval" jsonschema:"minimum=0,default=0"`
	// AfterTools makes a restore point of the end of each round of tool calls.
	AfterTools bool `yaml:"after_tools" jsonschema:"default=false"`
	// BeforeLLM makes a restore point of the beginning of each model call.
	BeforeLLM bool `yaml:"before_llm" jsonschema:"default=false"`
	// Recovery says what happens to running tasks after a restart.
	Recovery Recovery `yaml:"recovery" acts:"always"`
}

// checkRules refuses keys that have no effect with the strategy.
func (che *Checkpoint) checkRules(c *validation, s document.Location) {
	byEvents, byInterval := che.AfterTools || che.BeforeLLM, che.Interval > 0
	switch {
	case !che.Enabled:
	case che.Strategy == "event" && byInterval:
		c.addProblem(s.Child("interval"), "has no effect with strategy event; strategy interval or hybrid counts iterations")
	case che.Strategy == "interval" && byEvents:
		c.addProblem(s.Child("strategy"), "interval leaves after_tools and before_llm without effect; hybrid is both")
	case che.Strategy == "interval" && !byInterval:
		c.addProblem(s.Child("interval"), "must be at least 1 with strategy interval")
	}
}

// Recovery says what happens to a task whose process stopped in the middle of it.
type Recovery struct {
	// AutoResume lets such a task go on where it stopped, which is also the default. With false it fails.
	AutoResume *bool `yaml:"auto_resume"`
	// AutoResumeHITL is the same for a task that went on after a human's decision or answer. Without it, it is
	// auto_resume. A task that still waits for a human continues to wait in any case.
	AutoResumeHITL *bool `yaml:"auto_resume_hitl"`
	// Timeout is how old the last step of a task may be for it to go on, in seconds. It acts where checkpoints are enabled.
	Timeout int `yaml:"timeout" jsonschema:"minimum=1,default=3600"`
}

// checkRules refuses a database of the app's own for tasks: a task, its events and its run are written in one
// transaction of the server's database.
func (sto *Storage) checkRules(c *validation, s document.Location) {
	if sto.Tasks.Database != "" {
		c.addProblem(s.Child("tasks").Child("database"), "cannot be chosen: tasks, their events and runs are kept in the server's own database; storage.sessions.database may be the app's")
	}
}

// checkRules refuses a database that Stoa cannot store in.
func (b *Backend) checkRules(c *validation, s document.Location) {
	c.refuseMySQL(s.Child("database"), b.Database)
}

// checkRules checks that a vector memory has an embedder.
func (m *Memory) checkRules(c *validation, s document.Location) {
	if m.Backend == "vector" && !c.doc.HasValue(s.Value, "embedder") {
		c.addProblem(s.Child("backend"), "needs an embedder beside it")
	}
}
