package gemini

import (
	"encoding/base64"
	"encoding/json"

	"google.golang.org/genai"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answerDecoder puts the events of one answer together.
type answerDecoder struct {
	*upstream.AnswerBuilder
	finishReason genai.FinishReason
	blocked      bool
	fileCount    int // files
}

// addEvent takes in the next event and returns what can be shown at once: text and files.
func (a *answerDecoder) addEvent(ev *genai.GenerateContentResponse) ([]llm.Chunk, error) {
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
		if p.FunctionCall.Args == nil {
			args = nil
		}
		return nil, a.addArguments(call, args)
	case p.Thought:
		return nil, nil
	case p.InlineData != nil:
		return a.addFile(p.InlineData)
	}
	return a.AddText(p.Text)
}

func (a *answerDecoder) addArguments(call *upstream.PartialCall, args []byte) error {
	if err := a.AddBufferedBytes(len(call.Thought)); err != nil {
		return err
	}
	return a.AppendArguments(call, string(args))
}

// maxFiles bounds the files that one answer may hold.
const maxFiles = 16

func (a *answerDecoder) addFile(b *genai.Blob) ([]llm.Chunk, error) {
	if a.fileCount++; a.fileCount > maxFiles {
		return nil, upstream.ErrTooLong
	}
	if err := a.AddFileBytes(len(b.Data)); err != nil {
		return nil, err
	}
	return []llm.Chunk{{Artifact: &agentsvc.ArtifactUpdate{Last: true, Artifact: agentsvc.Artifact{
		ID: agentsvc.NewID(), Name: b.DisplayName,
		Parts: []agentsvc.Part{{File: &agentsvc.File{Name: b.DisplayName, MediaType: b.MIMEType, Bytes: b.Data}}},
	}}}}, nil
}

// finishAnswer returns the last chunks of an answer that came to its end.
func (a *answerDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch a.finishReason {
	case "":
		if a.blocked {
			return a.Finish(llm.StopRefusal)
		}
		return nil, upstream.ErrBrokeOff
	case genai.FinishReasonStop:
		return a.Finish(llm.StopEnd)
	case genai.FinishReasonMaxTokens:
		return a.Finish(llm.StopLength)
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls:
		return nil, upstream.ErrMalformedCall
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonBlocklist, genai.FinishReasonProhibitedContent,
		genai.FinishReasonSPII, genai.FinishReasonImageSafety, genai.FinishReasonImageProhibitedContent, genai.FinishReasonLanguage:
		return a.Finish(llm.StopRefusal)
	}
	return a.Finish(llm.StopEnd)
}
