CREATE TABLE dropped_places (
    location {key} PRIMARY KEY,
    dropped_at BIGINT NOT NULL
);
