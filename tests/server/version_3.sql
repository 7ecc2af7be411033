BEGIN TRANSACTION;
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	time FLOAT NOT NULL, 
	who VARCHAR(64) NOT NULL, 
	address VARCHAR(64) NOT NULL, 
	action VARCHAR(64) NOT NULL, 
	about VARCHAR(500) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit" VALUES(1,1.79576645924915122981e+09,'ada','','submitted a task','1');
CREATE TABLE blobs (
	digest VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	created FLOAT NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE cells (
	id INTEGER NOT NULL, 
	task_id INTEGER NOT NULL, 
	"key" VARCHAR(32) NOT NULL, 
	file VARCHAR(100) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	model_id INTEGER NOT NULL, 
	attack_id INTEGER, 
	attack_ids JSON NOT NULL, 
	defence_id INTEGER, 
	data_id INTEGER NOT NULL, 
	model VARCHAR(600) NOT NULL, 
	attack VARCHAR(600) NOT NULL, 
	norm VARCHAR(16) NOT NULL, 
	epsilon FLOAT, 
	targeted BOOLEAN NOT NULL, 
	knowledge VARCHAR(32) NOT NULL, 
	seed BIGINT NOT NULL, 
	parameters TEXT NOT NULL, 
	terms TEXT NOT NULL, 
	images INTEGER NOT NULL, 
	attacked INTEGER NOT NULL, 
	fooled FLOAT NOT NULL, 
	reused BOOLEAN NOT NULL, 
	created FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (task_id, "key"), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE, 
	FOREIGN KEY(model_id) REFERENCES components (id), 
	FOREIGN KEY(attack_id) REFERENCES components (id), 
	FOREIGN KEY(defence_id) REFERENCES components (id), 
	FOREIGN KEY(data_id) REFERENCES components (id)
);
INSERT INTO "cells" VALUES(1,1,'k','k.parquet','d','done','',1,2,'[]',NULL,3,'lenet','fgsm','linf',0.1,0,'white-box',0,'{}','{}',20,19,7.0,0,1.0);
CREATE TABLE components (
	id INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	version VARCHAR(32) NOT NULL, 
	creator_id INTEGER NOT NULL, 
	licence VARCHAR(100) NOT NULL, 
	visibility VARCHAR(16) NOT NULL, 
	description TEXT NOT NULL, 
	form VARCHAR(16) NOT NULL, 
	entry VARCHAR(500) NOT NULL, 
	file_name VARCHAR(100) NOT NULL, 
	blob VARCHAR(64), 
	state VARCHAR(16) NOT NULL, 
	created FLOAT NOT NULL, 
	changed FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (creator_id, kind, name, version), 
	FOREIGN KEY(creator_id) REFERENCES users (id), 
	FOREIGN KEY(blob) REFERENCES blobs (digest)
);
INSERT INTO "components" VALUES(1,'model','lenet','1',1,'','public','','named','demo:mnist-lenet5','',NULL,'active',1.0,1.0);
INSERT INTO "components" VALUES(2,'attack','fgsm','1',1,'','public','','named','foolbox:fgsm','',NULL,'active',1.0,1.0);
INSERT INTO "components" VALUES(3,'data','mnist','1',1,'','public','','named','demo:mnist','',NULL,'active',1.0,1.0);
CREATE TABLE facts (
	name VARCHAR(64) NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "facts" VALUES('version',3);
INSERT INTO "facts" VALUES('seen',0);
CREATE TABLE histories (
	id INTEGER NOT NULL, 
	component_id INTEGER NOT NULL, 
	data_id INTEGER NOT NULL, 
	board VARCHAR(16) NOT NULL, 
	time FLOAT NOT NULL, 
	rank INTEGER NOT NULL, 
	rank_low INTEGER NOT NULL, 
	rank_high INTEGER NOT NULL, 
	subjects INTEGER NOT NULL, 
	score FLOAT NOT NULL, 
	tasks JSON NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(component_id) REFERENCES components (id) ON DELETE CASCADE, 
	FOREIGN KEY(data_id) REFERENCES components (id) ON DELETE CASCADE
);
CREATE TABLE parts (
	task_id INTEGER NOT NULL, 
	component_id INTEGER NOT NULL, 
	PRIMARY KEY (task_id, component_id), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE, 
	FOREIGN KEY(component_id) REFERENCES components (id)
);
INSERT INTO "parts" VALUES(1,1);
INSERT INTO "parts" VALUES(1,2);
INSERT INTO "parts" VALUES(1,3);
CREATE TABLE sign_ins (
	digest VARCHAR(64) NOT NULL, 
	user_id INTEGER NOT NULL, 
	expires FLOAT NOT NULL, 
	PRIMARY KEY (digest), 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);
CREATE TABLE tasks (
	id INTEGER NOT NULL, 
	owner_id INTEGER NOT NULL, 
	title VARCHAR(200) NOT NULL, 
	settings JSON NOT NULL, 
	visibility VARCHAR(16) NOT NULL, 
	priority INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	message TEXT NOT NULL, 
	created FLOAT NOT NULL, 
	started FLOAT NOT NULL, 
	finished FLOAT NOT NULL, 
	images INTEGER NOT NULL, 
	images_done INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	attempts INTEGER NOT NULL, 
	cancelling BOOLEAN NOT NULL, 
	lease VARCHAR(64) NOT NULL, 
	lease_until FLOAT NOT NULL, 
	signature TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(owner_id) REFERENCES users (id)
);
INSERT INTO "tasks" VALUES(1,1,'before','{"models": [1]}','public',0,'done','',1.0,0.0,0.0,0,0,2.5,0,0,'',0.0,'');
CREATE TABLE tokens (
	id INTEGER NOT NULL, 
	user_id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(64) NOT NULL, 
	created FLOAT NOT NULL, 
	expires FLOAT NOT NULL, 
	used FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE, 
	UNIQUE (digest)
);
CREATE TABLE users (
	id INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	password VARCHAR(256) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	active BOOLEAN NOT NULL, 
	created FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "users" VALUES(1,'ada','$argon2id$v=19$m=8,t=1,p=1$dB7CDtnr2VjN3Jf+9Hshlw$n+UIsh1Cuco3CBHGi4YrqWABAv3Kqlm/2Pv6EH6K0U8','admin',1,1.0);
CREATE INDEX audit_by_action ON audit (action, time);
CREATE INDEX ix_tokens_user_id ON tokens (user_id);
CREATE INDEX ix_components_kind ON components (kind);
CREATE INDEX ix_components_creator_id ON components (creator_id);
CREATE INDEX ix_components_blob ON components (blob);
CREATE INDEX tasks_by_state ON tasks (state, lease_until);
CREATE INDEX ix_tasks_owner_id ON tasks (owner_id);
CREATE INDEX ix_parts_component_id ON parts (component_id);
CREATE INDEX ix_cells_attack_id ON cells (attack_id);
CREATE INDEX ix_cells_defence_id ON cells (defence_id);
CREATE INDEX ix_cells_model_id ON cells (model_id);
CREATE INDEX ix_cells_task_id ON cells (task_id);
CREATE INDEX ix_cells_key ON cells ("key");
CREATE INDEX ix_cells_data_id ON cells (data_id);
CREATE INDEX ix_histories_component_id ON histories (component_id);
COMMIT;
