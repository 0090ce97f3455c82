"""The words, as tables, continued: what is done, where, when and how."""

from __future__ import annotations

# subjects, objects: English base, third, past, -ing | Korean (class) ; what elders do | French
OBJECT_VERBS = """
EPCNA FKMQ: eat eats ate eating | 먹다 ; 드시다 | manger
EPCN D: drink drinks drank drinking | 마시다 ; 드시다 | boire
EPCN K: make makes made making | 만들다 | préparer
EPCN M: cook cooks cooked cooking | 요리하다 | préparer
EPCN FKMQDTOUWV: buy buys bought buying | 사다 | acheter
P FKMQDTOUWV: sell sells sold selling | 팔다 | vendre
EPCN FKTOUWV: choose chooses chose choosing | 고르다 르 | choisir
EPCN T: read reads read reading | 읽다 | lire
EPCN T: write writes wrote writing | 쓰다 | écrire
EPCN T: translate translates translated translating | 번역하다 | traduire
EPCNA APCOUVHT: see sees saw seeing | 보다 | voir
EPCN PCNE: meet meets met meeting | 만나다 | rencontrer
EPCN PCN: help helps helped helping | 돕다 ㅂ | aider
EPCN PCN: call calls called calling | 부르다 르 | appeler
EPCN PCN: praise praises praised praising | 칭찬하다 | complimenter
EPCN OUTWVA: find finds found finding | 찾다 | trouver
EPCN OUTW: lose loses lost losing | 잃어버리다 | perdre
EPCN OUTW: forget forgets forgot forgetting | 잊어버리다 | oublier
EPCN OUTFKQW: bring brings brought bringing | 가져오다 | apporter
EPCN OU: carry carries carried carrying | 나르다 르 | porter
EPCN U: use uses used using | 사용하다 | utiliser
EPCN OU: hide hides hid hiding | 숨기다 | cacher
EPCN PAVHOU: draw draws drew drawing | 그리다 | dessiner
EPCN UVB: repair repairs repaired repairing | 고치다 | réparer
EPCN UVB: clean cleans cleaned cleaning | 닦다 | nettoyer
EPCN F: wash washes washed washing | 씻다 | laver
EPCN FKQ: cut cuts cut cutting | 자르다 르 | couper
EPCN B: open opens opened opening | 열다 | ouvrir
EPCN B: close closes closed closing | 닫다 | fermer
PCA B: break breaks broke breaking | 부수다 | casser
EP H: build builds built building | 짓다 ㅅ | construire
EPCN J: learn learns learned learning | 배우다 | apprendre
EP J: teach teaches taught teaching | 가르치다 | enseigner
EPCN S: sing sings sang singing | 부르다 르 | chanter
EPCN S: hear hears heard hearing | 듣다 ㄷ | entendre
EPCN Y: cross crosses crossed crossing | 건너다 | traverser
EPCN W: wear wears wore wearing | 입다 | porter
A APC: follow follows followed following | 따라가다 | suivre
A A: chase chases chased chasing | 쫓아가다 | poursuivre
"""
STATES = """
EPCN APCNTOUFKJS: like likes liked liking | 좋아하다 | aimer
EPCN TOUVWFK: want wants wanted wanting | 원하다 | vouloir
EPCN PCS: know knows knew knowing | 알다 | connaître
"""
ACTIVITIES = """
EPCNA: sleep sleeps slept sleeping | 자다 ; 주무시다 | dormir
EPCNA: run runs ran running | 달리다 | courir
EPCN: swim swims swam swimming | 수영하다 | nager
EPN: work works worked working | 일하다 | travailler
EPCN: laugh laughs laughed laughing | 웃다 | rire
EPCN: cry cries cried crying | 울다 | pleurer
EPCN: dance dances danced dancing | 춤추다 | danser
EPCN: sing sings sang singing | 노래하다 | chanter
CN: study studies studied studying | 공부하다 | étudier
EPCNA: walk walks walked walking | 걷다 ㄷ | marcher
EPCNA: wait waits waited waiting | 기다리다 | attendre
CA: play plays played playing | 놀다 | jouer
EPCN: speak speaks spoke speaking | 말하다 ; 말씀하시다 | parler
"""
GIFTS = """
EPCN FKTOUW: give gives gave giving | 주다 | donner
EPCN TOUW: send sends sent sending | 보내다 | envoyer
EPCN TOUWF: show shows showed showing | 보여 주다 | montrer
EPCN TOU: lend lends lent lending | 빌려주다 | prêter
"""
MOTIONS = """
EPCNA 에: go goes went going | 가다 | aller
EPCNA 에: come comes came coming | 오다 | venir
EPCNA 으로: return returns returned returning | 돌아가다 | retourner
"""
STAYS = """
EPCN 에: stay stays stayed staying | 머무르다 르 | rester
EPCN 에: live lives lived living | 살다 | vivre
"""

# preposition, place | Korean | French, gender (- for a city), preposition
PLACES = """
at market | 시장 | marché m à
at school | 학교 | école f à
in park | 공원 | parc m dans
at library | 도서관 | bibliothèque f à
at station | 역 | gare f à
at hospital | 병원 | hôpital m à
at restaurant | 식당 | restaurant m à
at museum | 박물관 | musée m à
in garden | 정원 | jardin m dans
in kitchen | 부엌 | cuisine f dans
in village | 마을 | village m dans
in city | 도시 | ville f dans
in forest | 숲 | forêt f dans
at beach | 바닷가 | plage f à
at office | 사무실 | bureau m à
in shop | 가게 | magasin m dans
at theater | 극장 | théâtre m à
at church | 교회 | église f à
at airport | 공항 | aéroport m à
at bank | 은행 | banque f à
in classroom | 교실 | classe f dans
at bakery | 빵집 | boulangerie f à
at hotel | 호텔 | hôtel m à
on island | 섬 | île f sur
in Seoul | 서울 | Séoul - à
in Busan | 부산 | Busan - à
in Paris | 파리 | Paris - à
in London | 런던 | Londres - à
"""

# English | Korean | French, by the tense they go with
TIMES = {
    "past": """
yesterday | 어제 | hier
last week | 지난주에 | la semaine dernière
last night | 어젯밤에 | hier soir
this morning | 오늘 아침에 | ce matin
last year | 작년에 | l'année dernière
last month | 지난달에 | le mois dernier
two days ago | 이틀 전에 | il y a deux jours
on Sunday | 일요일에 | dimanche
""",
    "present": """
every day | 매일 | tous les jours
every morning | 아침마다 | tous les matins
every week | 매주 | toutes les semaines
in summer | 여름에 | en été
in winter | 겨울에 | en hiver
on weekends | 주말에 | le week-end
""",
    "progressive": """
now | 지금 | maintenant
right now | 바로 지금 | en ce moment
""",
    "was": """
yesterday | 어제 | hier
this morning | 오늘 아침에 | ce matin
last night | 어젯밤에 | hier soir
""",
    "future": """
tomorrow | 내일 | demain
next week | 다음 주에 | la semaine prochaine
next year | 내년에 | l'année prochaine
tonight | 오늘 밤에 | ce soir
next month | 다음 달에 | le mois prochain
""",
}
OFTEN = """
often | 자주 | souvent
always | 항상 | toujours
sometimes | 가끔 | parfois
usually | 보통 | généralement
"""
MANNERS = """
quickly | 빨리 | rapidement
slowly | 천천히 | lentement
quietly | 조용히 | tranquillement
happily | 즐겁게 | joyeusement
carefully | 조심스럽게 | prudemment
"""
VEHICLES = """
by bus | 버스로 | en bus
by train | 기차로 | en train
by car | 자동차로 | en voiture
by subway | 지하철로 | en métro
by taxi | 택시로 | en taxi
by bicycle | 자전거로 | à vélo
"""
DEGREES = """
very | 아주 | très
too | 너무 | trop
really | 정말 | vraiment
so | 무척 | tellement
"""
