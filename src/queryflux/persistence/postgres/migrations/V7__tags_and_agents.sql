-- lowest compatible version: 1
-- Tags of a query, and the agent, conversation and step that it belongs to.

ALTER TABLE query_records
    ADD COLUMN query_tags jsonb,
    ADD COLUMN agent_id text,
    ADD COLUMN conversation_id text,
    ADD COLUMN step_index integer,
    ADD COLUMN tool_call_id text,
    ADD COLUMN query_intent text;
CREATE INDEX query_records_agent ON query_records (agent_id, created_at DESC) WHERE agent_id IS NOT NULL;
CREATE INDEX query_records_conversation ON query_records (conversation_id, step_index)
    WHERE conversation_id IS NOT NULL;
