package tenantapi

import (
	"stoa/agentsvc/surface/encode"
	"stoa/authz"
)

// checkpointBody is a checkpoint of a task; ID is the sequence number of its event.
type checkpointBody struct {
	// ID is the sequence number of the checkpoint's event; :restore takes it.
	ID int64 `json:"id"`
	// Reason is start, before_llm, after_tools or interval.
	Reason string `json:"reason"`
	// Step counts the model calls of the agent before the checkpoint.
	Step int `json:"step"`
	// Agent is the path of the sub-agent that the checkpoint belongs to, "" = the task's agent.
	Agent string `json:"agent,omitempty"`
	At    string `json:"at"`
}

type checkpointList struct {
	Checkpoints []checkpointBody `json:"checkpoints"`
}

// memoryBody is one memory about a user (Subject and Issuer of its owner).
type memoryBody struct {
	MemoryID  string `json:"memory_id"`
	User      string `json:"user"`
	Issuer    string `json:"issuer"`
	Agent     string `json:"agent"`
	ContextID string `json:"context_id"`
	TaskID    string `json:"task_id"`
	// Role is who wrote it: the user or the agent.
	Role      string  `json:"role"`
	Text      string  `json:"text"`
	CreatedAt *string `json:"created_at"`
}

type notificationList struct {
	Notifications []notificationBody `json:"notifications"`
}

// notificationBody is a receiver of a task's notifications, without its address.
type notificationBody struct {
	ID string `json:"id"`
	// Form is the format of the bodies, such as a2a/1.0.
	Form   string `json:"form"`
	Status string `json:"status"`
	// Attempts counts the failures since the last delivery that succeeded.
	Attempts  int64  `json:"failed_attempts"`
	Error     string `json:"error,omitempty"`
	CreatedAt string `json:"created_at"`
}

// callerBody is who calls and what the credential allows in the app. Agents that alone may be called have a scope each.
type callerBody struct {
	App       string        `json:"app"`
	User      string        `json:"user"`
	Issuer    string        `json:"issuer,omitempty"`
	Anonymous bool          `json:"anonymous"`
	Scopes    []authz.Scope `json:"scopes"`
}

// credentialBody is a credential that a user has given to a tool, without its value.
type credentialBody struct {
	Tool      string  `json:"tool"`
	Header    string  `json:"header"`
	Server    string  `json:"server"`
	CreatedAt *string `json:"created_at"`
}

type credentialList struct {
	Credentials []credentialBody `json:"credentials"`
}

type memoryList struct {
	Memories      []memoryBody `json:"memories"`
	NextPageToken string       `json:"next_page_token"`
}

// taskList is a page of tasks with their open approvals.
type taskList struct {
	Tasks         []encode.TaskRecord `json:"tasks"`
	NextPageToken string              `json:"next_page_token"`
	TotalSize     int                 `json:"total_size"`
}

// savedConfig is the answer to a configuration that was saved, or with dry_run checked: the revision it is, or would be.
type savedConfig struct {
	Revision int64           `json:"revision"`
	Warnings []configWarning `json:"warnings"`
}

// configWarning is what a configuration asks for and does not get. Its fields are those of tenancy.Warning in the same
// order.
type configWarning struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// secretBody sets a secret; a nil Value is a missing member, "" an empty secret.
type secretBody struct {
	Value *string `json:"value"`
}

// secretInfo is a secret of the app without its value.
type secretInfo struct {
	Name      string  `json:"name"`
	CreatedAt *string `json:"created_at"`
	UpdatedAt *string `json:"updated_at"`
}

type secretList struct {
	Secrets []secretInfo `json:"secrets"`
}
