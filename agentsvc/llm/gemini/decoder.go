package gemini

import (
	"encoding/base64"
	"encoding/json"

	"google.golang.org/genai"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answerDecoder assembles the events of one answer.
type answerDecoder struct {
	*upstream.AnswerBuilder
	// finishReason is "" until the server sends one.
	finishReason genai.FinishReason
	// blocked reports that the prompt was blocked: then there is no candidate and no finish reason.
	blocked bool
	// fileCount counts the files of the answer, see maxFiles.
	fileCount int
}

// addEvent processes the next event and returns the chunks that can be shown at once: text and files. The API counts
// thoughts and tool prompts separately; [agentsvc.Usage] includes them. Only the first candidate is read.
func (a *answerDecoder) addEvent(ev *genai.GenerateContentResponse) ([]llm.Chunk, error) {
	// The prompt itself was blocked: such an answer has no candidates.
	if f := ev.PromptFeedback; f != nil && f.BlockReason != "" {
		a.blocked = true
	}
	if u := ev.UsageMetadata; u != nil {
		thoughts := int64(u.ThoughtsTokenCount)
		a.SetUsage(int64(u.PromptTokenCount)+int64(u.ToolUsePromptTokenCount), int64(u.CandidatesTokenCount)+thoughts,
			int64(u.CachedContentTokenCount), 0, thoughts)
	}
	if len(ev.Candidates) == 0 || ev.Candidates[0] == nil {
		return nil, nil
	}
	// One candidate is requested; others are not read.
	first := ev.Candidates[0]
	if first.FinishReason != "" && first.FinishReason != genai.FinishReasonUnspecified {
		a.finishReason = first.FinishReason
	}
	if first.Content == nil {
		return nil, nil
	}
	var out []llm.Chunk
	for _, part := range first.Content.Parts {
		if part == nil {
			continue
		}
		chunks, err := a.addPart(part)
		if err != nil {
			return nil, err
		}
		out = append(out, chunks...)
	}
	return out, nil
}

// addPart processes one part. A function call is always complete in one part.
func (a *answerDecoder) addPart(p *genai.Part) ([]llm.Chunk, error) {
	switch {
	case p.FunctionCall != nil:
		call, err := a.StartCall(p.FunctionCall.ID, p.FunctionCall.Name)
		if err != nil {
			return nil, err
		}
		if len(p.ThoughtSignature) > 0 {
			call.Thought = upstream.SealThought(vendorName, base64.StdEncoding.EncodeToString(p.ThoughtSignature))
		}
		args, err := json.Marshal(p.FunctionCall.Args)
		if err != nil {
			return nil, err
		}
		// A call without arguments: Marshal returned null.
		if p.FunctionCall.Args == nil {
			args = nil
		}
		return nil, a.addArguments(call, args)
	// Summaries of thoughts are not shown.
	case p.Thought:
		return nil, nil
	// A file that the model made becomes an artifact.
	case p.InlineData != nil:
		return a.addFile(p.InlineData)
	}
	return a.AddText(p.Text)
}

// addArguments counts the thought and sets the arguments of a call.
func (a *answerDecoder) addArguments(call *upstream.PartialCall, args []byte) error {
	// The signature is buffered with the call until the end.
	if err := a.AddBufferedBytes(len(call.Thought)); err != nil {
		return err
	}
	return a.AppendArguments(call, string(args))
}

// maxFiles bounds the files of one answer: each becomes an artifact on the task's log.
const maxFiles = 16

// addFile returns a file as a complete artifact.
func (a *answerDecoder) addFile(b *genai.Blob) ([]llm.Chunk, error) {
	if a.fileCount++; a.fileCount > maxFiles {
		return nil, upstream.ErrTooLong
	}
	if err := a.AddFileBytes(len(b.Data)); err != nil {
		return nil, err
	}
	// A file is one complete artifact with a new id: the model cannot extend it.
	return []llm.Chunk{{Artifact: &agentsvc.ArtifactUpdate{Last: true, Artifact: agentsvc.Artifact{
		ID: agentsvc.NewID(), Name: b.DisplayName,
		Parts: []agentsvc.Part{{File: &agentsvc.File{Name: b.DisplayName, MediaType: b.MIMEType, Bytes: b.Data}}},
	}}}}, nil
}

// finishAnswer returns the last chunks of an answer. Without a finish reason the stream ended early, unless the prompt
// was blocked.
func (a *answerDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch a.finishReason {
	case "":
		if a.blocked {
			return a.Finish(llm.StopRefusal)
		}
		return nil, upstream.ErrBrokeOff
	case genai.FinishReasonStop:
		return a.Finish(llm.StopEnd)
	// The answer is cut off: Finish yields no calls.
	case genai.FinishReasonMaxTokens:
		return a.Finish(llm.StopLength)
	// The model tried to call a tool and failed. A retry may succeed, so this is an error and not an answer.
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls:
		return nil, upstream.ErrMalformedCall
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonBlocklist, genai.FinishReasonProhibitedContent,
		genai.FinishReasonSPII, genai.FinishReasonImageSafety, genai.FinishReasonImageProhibitedContent, genai.FinishReasonLanguage:
		return a.Finish(llm.StopRefusal)
	}
	return a.Finish(llm.StopEnd)
}
